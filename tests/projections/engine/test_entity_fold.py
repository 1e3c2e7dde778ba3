"""The rows of entities are a function of the log: no other record, no cut into polls and no halt changes them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.projections.engine.writer import COPY_FROM_ROWS
from loomlog.projections.entities import keyed_seal, verify_seal
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.entity_events import (
    AggregateEventImported,
    AggregateQuarantined,
    CommandHadNoEffect,
    CommandRefused,
)
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import replace as replace_value
from loomlog.services.core.families import ITEMS_MAX, Item
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.counters import (
    BOTH,
    FOLDS,
    ITEM_FOLDS,
    ITEMIZED,
    Counters,
    busy,
    counter,
    folded,
    raised,
    records_of,
    reset,
    restated,
    with_rules,
)
from tests.projections.stories import Partition
from tests.projections.twin import cut


def busy_records():
    partition = Counters()
    busy(partition)
    return records_of(partition)[0]


BUSY = busy_records()
WHOLE = folded([BUSY])


def rows_after(write, **options):
    partition = Counters()
    partition.claim()
    write(partition)
    return folded([records_of(partition)[0]], **options), partition


def test_a_row_has_the_state_and_where_it_is_in_the_log():
    twin, partition = rows_after(lambda p: p.raise_("a", 1, 2, cause_id="c1"))
    row = twin.entities[counter("a")]
    assert (row.family, row.tenant, row.name, row.partition) == ("counter", "acme", "a", 0)
    assert (row.seq, row.first_offset, row.last_offset, row.version) == (2, 1, 2, 1)
    assert row.digest == digest(partition.records[2])
    assert (row.quarantine, row.halted_offset, row.due_ms, row.is_over) == ("", -1, 0, False)
    assert row.created_at_ms == row.updated_at_ms - 3
    assert FOLDS["counter"].decode(row.state.encode()).state.value == 2
    assert twin.commands["c1", counter("a")][1:] == (counter("a"), 0, 1, 2, row.created_at_ms)
    assert not twin.problems


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=len(BUSY)), max_size=8))
def test_any_cut_into_polls_gives_the_same_rows(edges):
    assert folded(cut(BUSY, edges)).tables == WHOLE.tables


VALUES = st.integers(min_value=1, max_value=2**40)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["raise", "reset", "restate"]), VALUES), max_size=30)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.integers(min_value=0, max_value=40), max_size=6))
def test_the_state_in_the_row_is_the_fold_of_all_events(steps, edges):
    partition = Counters()
    partition.claim()
    expected: dict[str, int] = {}
    for name, verb, value in steps:
        event = {"raise": raised(value), "reset": reset(value), "restate": restated(value)}[verb]
        partition.add(counter(name), event, tenant="acme")
        expected[name] = 0 if verb == "reset" else value
    twin = folded(cut(records_of(partition)[0], edges))
    values = {row.name: FOLDS["counter"].decode(row.state.encode()).state.value for row in twin.entities.values()}
    assert values == expected
    assert {row.name: row.seq for row in twin.entities.values()} == {
        name: sum(step[0] == name for step in steps) for name in expected
    }


def test_generic_events_move_the_position_and_not_the_state():
    def write(partition):
        partition.raise_("a", 7)
        partition.add(counter("a"), CommandRefused(code="no", message="no"), tenant="acme", cause_id="c2")
        partition.add(counter("a"), CommandHadNoEffect(), tenant="acme", cause_id="c3")

    twin, _ = rows_after(write)
    row = twin.entities[counter("a")]
    assert (row.seq, row.last_offset, row.updated_at_ms) == (3, 3, row.created_at_ms)
    assert set(twin.commands) == {("c2", counter("a")), ("c3", counter("a"))}


def test_a_quarantine_in_the_log_is_in_the_row_and_a_repair_ends_it():
    def write(partition):
        partition.raise_("a", 7)
        partition.add(counter("a"), AggregateQuarantined(error="a rule raised"), tenant="acme")

    twin, partition = rows_after(write)
    row = twin.entities[counter("a")]
    assert (row.quarantine, row.halted_offset, row.seq) == ("a rule raised", -1, 2)
    partition.add(counter("a"), restated(3), tenant="acme")
    twin = folded([records_of(partition)[0]])
    row = twin.entities[counter("a")]
    assert (row.quarantine, row.seq) == ("", 3)
    assert not twin.problems


def test_a_command_has_a_row_for_each_aggregate_it_was_given_to():
    first, second = WHOLE.commands["c1", counter("a")], WHOLE.commands["c1", counter("a", "other")]
    assert (first.first_offset, first.last_offset) == (1, 2)
    assert (second.first_offset, second.last_offset) == (4, 4)


def test_stale_records_leave_no_trace():
    assert ("stale", counter("a")) not in WHOLE.commands
    assert WHOLE.entities[counter("a")].seq == 3


def test_a_command_id_that_no_index_takes_is_not_indexed():
    def write(partition):
        partition.raise_("a", 1, cause_id="x" * 1_025)
        partition.raise_("a", 2, cause_id="nul\x00")

    twin, _ = rows_after(write)
    assert not twin.commands
    assert twin.entities[counter("a")].seq == 2


# --- what halts an aggregate, and no other ---------------------------------------------------------------------------


def problems_of(twin):
    return {(problem.offset, problem.kind, problem.run_id) for problem in twin.problems.values()}


def test_every_record_that_cannot_be_folded_is_a_problem():
    assert problems_of(WHOLE) == {
        (5, "unknown_family", "unknown:acme/x"),
        (6, "foreign_record", "garbage"),
        (10, "undecodable", counter("torn")),
        (13, "undecodable", ""),
        (15, "broken_sequence", counter("gap")),
        (18, "foreign_record", counter("liar")),
    }
    assert WHOLE.entities[counter("b")].seq == 4


def test_a_halted_aggregate_keeps_its_last_good_state():
    row = WHOLE.entities[counter("gap")]
    assert (row.seq, row.last_offset, row.halted_offset) == (1, 14, 15)
    assert "expected seq 2" in row.quarantine
    assert FOLDS["counter"].decode(row.state.encode()).state.value == 1
    assert ("c6", counter("gap")) in WHOLE.commands, "its commands are known nevertheless"


def test_an_aggregate_of_an_unknown_family_has_a_row_without_a_state():
    row = WHOLE.entities["unknown:acme/x"]
    assert (row.seq, row.version, row.state, row.halted_offset) == (0, 0, "null", 5)
    assert "LOOMLOG_FAMILIES" in row.quarantine


def test_a_restated_aggregate_is_folded_on_from_there():
    row = WHOLE.entities[counter("torn")]
    assert (row.quarantine, row.halted_offset, row.seq, row.first_offset) == ("", -1, 5, 10)
    assert FOLDS["counter"].decode(row.state.encode()).seq == 5, "as its owner folds it"
    assert FOLDS["counter"].decode(row.state.encode()).state.value == 41


def test_a_restatement_ends_a_gap_that_it_stands_behind():
    def write(partition):
        partition.raise_("a", 1)
        partition.seqs[counter("a")] += 3
        partition.add(counter("a"), restated(9), tenant="acme")
        partition.raise_("a", 10)

    twin, _ = rows_after(write)
    assert not twin.problems
    assert (twin.entities[counter("a")].seq, twin.entities[counter("a")].quarantine) == (6, "")


def test_a_restatement_that_cannot_be_read_leaves_the_first_halt():
    def write(partition):
        partition.add(counter("a"), raised(1), tenant="evil")
        broken = restated(1)
        partition.add(counter("a"), type(broken)(state=b"{", version=1, reason="", by=""), tenant="acme")

    twin, _ = rows_after(write)
    assert problems_of(twin) == {(1, "foreign_record", counter("a"))}
    assert twin.entities[counter("a")].halted_offset == 1


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"evolve": lambda state, event, at_ms: type(state)(1 // (event.value - 2))}, "ZeroDivisionError"),
        ({"next_timer_ms": lambda state: 2**63 if state.value == 2 else 0}, "no time"),
        ({"next_timer_ms": lambda state: -1 if state.value == 2 else 0}, "no time"),
        ({"is_over": lambda state: 1 // (state.value - 2)}, "ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("edges", [[], range(9)])
def test_a_rule_that_raises_halts_its_aggregate_at_that_event(rules, message, edges):
    family = with_rules(**rules)
    partition = Counters()
    partition.claim()
    partition.raise_("a", 1)
    partition.raise_("b", 1)
    partition.raise_("a", 2, 3)
    partition.raise_("b", 3)
    twin = folded(cut(records_of(partition)[0], edges), folds=entity_folds([family]))
    assert {(problem.offset, problem.kind) for problem in twin.problems.values()} == {(3, "fold_failed")}
    assert message in twin.entities[counter("a")].quarantine
    assert (twin.entities[counter("a")].seq, twin.entities[counter("b")].seq) == (1, 2)


def test_a_state_that_cannot_be_encoded_halts_its_aggregate():
    family = with_rules(evolve=lambda state, event, at_ms: object() if event.value == 2 else state)
    twin, _ = rows_after(lambda p: p.raise_("a", 2), folds=entity_folds([family]))
    assert problems_of(twin) == {(1, "fold_failed", counter("a"))}
    assert twin.entities[counter("a")].seq == 0


def test_an_event_of_another_family_halts_the_aggregate():
    twin, _ = rows_after(lambda p: p.add("tally:acme/a", raised(1), tenant="acme"), folds=BOTH)
    assert problems_of(twin) == {(1, "fold_failed", "tally:acme/a")}


def test_an_event_of_a_run_is_no_event_of_an_entity():
    partition = Partition()
    partition.claim()
    partition.add(counter("a"), RunParked(since_turn=1), tenant="acme")
    assert problems_of(folded([records_of(partition)[0]])) == {(1, "undecodable", counter("a"))}


def test_a_timer_is_in_the_row_until_the_aggregate_is_halted():
    family = with_rules(next_timer_ms=lambda state: 5_000 + state.value)
    twin, partition = rows_after(lambda p: p.raise_("a", 1), folds=entity_folds([family]))
    assert twin.entities[counter("a")].due_ms == 5_001
    partition.add(counter("a"), raised(2), tenant="evil")
    twin = folded([records_of(partition)[0]], folds=entity_folds([family]))
    assert twin.entities[counter("a")].due_ms == 0


def test_the_seal_covers_every_column():
    seal = keyed_seal(b"k" * 32)
    row = folded([BUSY], seal=seal).entities[counter("a")]
    assert verify_seal(row, seal)
    assert not verify_seal(row, keyed_seal(b"other"))
    for name, value in row._asdict().items():
        if name == "seal":
            continue
        edited = row._replace(**{name: value + type(value)(b"x" if isinstance(value, bytes) else 1)})
        if edited != row:
            assert not verify_seal(edited, seal), name


# --- items -----------------------------------------------------------------------------------------------------------

WHOLE_ITEMS = folded([BUSY], folds=ITEM_FOLDS)


def ids_of(twin, kind="step"):
    return sorted(row.id for row in twin.items.values() if row.kind == kind)


def test_an_item_has_what_the_family_says_and_where_its_event_is():
    twin, _ = rows_after(lambda p: p.raise_("a", 1, 2, cause_id="c1"), folds=ITEM_FOLDS)
    row = twin.items["counter", "acme", "step", f"{counter('a')}#2"]
    assert row[:5] == ("counter", "acme", counter("a"), "a", "step")
    assert (row.key_a, row.key_b, row.number, row.document) == ("by 1", "c1", 0.25, '{"value": 2}')
    assert (row.partition, row.offset, row.seq) == (0, 2, 2)
    assert row.at_ms == twin.entities[counter("a")].updated_at_ms


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=len(BUSY)), max_size=8))
def test_any_cut_into_polls_gives_the_same_items(edges):
    assert folded(cut(BUSY, edges), folds=ITEM_FOLDS).tables == WHOLE_ITEMS.tables


def test_no_item_is_of_a_stale_record_a_restatement_or_what_follows_a_halt():
    assert ids_of(WHOLE_ITEMS) == sorted(
        [f"{counter('a')}#{value}" for value in (1, 2)]
        + [f"{counter('b')}#{value}" for value in (1, 2, 3, 4)]
        + [f"{counter('a', 'other')}#3", f"{counter('gap')}#1", f"{counter('torn')}#41"]
    )


def test_an_item_is_replaced_by_its_id_and_removed_without_a_document():
    last = {row.name: row.number for row in WHOLE_ITEMS.items.values() if (row.kind, row.tenant) == ("last", "acme")}
    assert last == {"b": 4, "gap": 1, "torn": 41}


def itemized(make):
    return entity_folds([replace(ITEMIZED, items=make)])


GOOD = Item(kind="step", id="x", document="{}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": ""}, "kind '' of an item must be a word"),
        ({"kind": "Step"}, "must be a word"),
        ({"id": ""}, "id of the step '' has 0 bytes"),
        ({"id": "x" * 2_101}, "has 2101 bytes"),
        ({"key_a": "x" * 513}, "has 513 bytes"),
        ({"id": "a\nb"}, "cannot be printed"),
        ({"key_a": "nul\x00"}, "key_a of the step 'x' has characters that cannot be printed"),
        ({"key_b": "\ud800"}, "key_b of the step 'x' has characters"),
        ({"number": float("nan")}, "must be finite, not nan"),
        ({"number": float("-inf")}, "must be finite"),
        ({"document": "{"}, "is no JSON text"),
        ({"document": "[NaN]"}, "NaN is no JSON"),
        ({"document": '"\ud800"'}, "is no JSON text"),
        ({"document": "[" * 100_000}, "is no JSON text"),
        ({"document": '"' + "x" * 600_000 + '"'}, "has 600002 bytes"),
    ],
)
@pytest.mark.parametrize("edges", [[], range(9)])
def test_an_item_that_no_row_can_hold_halts_its_aggregate_at_that_event(changes, message, edges):
    bad = replace_value(GOOD, **changes)
    folds = itemized(lambda state, event, envelope: [GOOD, bad] if state.value == 2 else [GOOD])
    partition = Counters()
    partition.claim()
    partition.raise_("a", 1, 2, 3)
    partition.raise_("b", 1)
    twin = folded(cut(records_of(partition)[0], edges), folds=folds)
    assert problems_of(twin) == {(2, "fold_failed", counter("a"))}
    assert message in twin.entities[counter("a")].quarantine
    assert (twin.entities[counter("a")].seq, twin.entities[counter("b")].seq) == (1, 1)
    assert twin.items["counter", "acme", "step", "x"].aggregate == counter("b")


def test_items_that_raise_halt_their_aggregate():
    folds = itemized(lambda state, event, envelope: 1 // (state.value - 2))
    twin, _ = rows_after(lambda p: p.raise_("a", 2, 3), folds=folds)
    assert problems_of(twin) == {(1, "fold_failed", counter("a"))}
    assert "CounterIncremented: items raised ZeroDivisionError" in twin.entities[counter("a")].quarantine


def test_an_event_has_so_many_items_that_they_are_written_in_one_statement():
    assert ITEMS_MAX < COPY_FROM_ROWS, "what COPY has staged would be written again with the next event"
    for count in (ITEMS_MAX, ITEMS_MAX + 1):
        folds = itemized(lambda *_, n=count: [replace_value(GOOD, id=str(number)) for number in range(n)])
        twin, _ = rows_after(lambda p: p.raise_("a", 1), folds=folds)
        assert len(twin.items) == (count if count == ITEMS_MAX else 0)
    assert "there are 201 items" in twin.entities[counter("a")].quarantine


def test_events_whose_state_cannot_be_stored_have_no_items():
    family = with_rules(
        evolve=lambda state, event, at_ms: object() if event.value == 2 else type(state)(event.value),
        next_timer_ms=lambda state: 0,
    )
    folds = entity_folds([replace(family, items=lambda state, event, envelope: [GOOD])])
    twin, _ = rows_after(lambda p: p.raise_("a", 1, 2), folds=folds)
    assert (twin.entities[counter("a")].seq, twin.items) == (0, {})


def test_numbers_and_documents_at_their_bounds_are_taken():
    good = replace_value(GOOD, number=-1.7e308, document='"\\u0000\\ud800"', id="é" * 256, key_a="x" * 512)
    twin, _ = rows_after(lambda p: p.raise_("a", 1), folds=itemized(lambda state, event, envelope: [good]))
    assert [row.number for row in twin.items.values()] == [-1.7e308]


def test_generic_events_have_no_items():
    def write(partition):
        partition.add(counter("a"), CommandRefused(code="no", message="no"), tenant="acme")
        partition.add(counter("a"), CommandHadNoEffect(), tenant="acme")
        partition.add(counter("a"), AggregateQuarantined(error="a rule raised"), tenant="acme")

    twin, _ = rows_after(write, folds=itemized(lambda state, event, envelope: [GOOD]))
    assert not twin.items
    assert twin.entities[counter("a")].seq == 3


def test_an_imported_event_has_the_items_and_the_time_of_its_original():
    there = Envelope(term=3, seq=1, aggregate=counter("a"), tenant="acme", at_ms=77, prev=bytes(16), cause_id="c9")

    def write(partition):
        imported = AggregateEventImported(event=local_codec().encode_event(there, raised(5)), remaining=0, origin=None)
        refused = local_codec().encode_event(replace_value(there, seq=2), CommandRefused(code="no", message="no"))
        partition.add(counter("a"), imported, tenant="acme")
        partition.add(
            counter("a"), AggregateEventImported(event=refused, remaining=0, origin=None), tenant="acme", cause_id="c1"
        )

    twin, _ = rows_after(write, folds=ITEM_FOLDS)
    row = twin.items["counter", "acme", "step", f"{counter('a')}#5"]
    assert (row.at_ms, row.offset, row.seq, row.key_b) == (77, 1, 1, "c9")
    assert twin.entities[counter("a")].seq == 2
