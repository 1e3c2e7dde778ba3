"""The rows of entities are a function of the log: no other record, no cut into polls and no halt changes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.projections.entities import keyed_seal, verify_seal
from loomlog.schemas.codec import digest
from loomlog.schemas.generated.entity_events import AggregateQuarantined, CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.run_events import RunParked
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.counters import (
    BOTH,
    FOLDS,
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
