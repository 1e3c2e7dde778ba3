"""What can be asked of the rows of entities."""

import pytest

from loomlog.projections import entities as entities_module
from loomlog.projections.entities import (
    FoldRow,
    count_entities,
    count_quarantined,
    due_timers,
    find_commands,
    keyed_seal,
    list_entities,
    list_folds,
    list_quarantined,
    load_entities,
    next_offsets,
    plain_seal,
    seal_name,
    verify_seal,
)
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken
from loomlog.schemas.generated.entity_events import AggregateQuarantined
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.counters import BOTH, TOPIC, Counters, counter, restated, with_rules

NAMES = ["a", "a/b", "a_b", "ab", "B", "b%", "é", "z!"]


@pytest.fixture
def partition() -> Counters:
    partition = Counters()
    partition.claim()
    return partition


async def test_rows_are_loaded_by_id_many_at_once(partition, project_entities, entity_reader, monkeypatch):
    partition.raise_("a", 1, 2)
    partition.raise_("b", 1)
    await project_entities(partition)
    ids = [counter("b"), counter("a"), counter("missing"), "nul\x00"]
    monkeypatch.setattr(entities_module, "IDS_MAX", 2)
    rows = {row.aggregate: row for row in await load_entities(entity_reader, ids)}
    assert {name: row.seq for name, row in rows.items()} == {counter("a"): 2, counter("b"): 1}
    assert all(verify_seal(row, plain_seal) for row in rows.values())
    assert await load_entities(entity_reader, []) == []


async def test_a_seal_that_was_made_with_a_key_is_verified_with_it(partition, project_entities, entity_reader):
    seal = keyed_seal(b"k" * 32)
    partition.raise_("a", 1)
    await project_entities(partition, seal=seal)
    (row,) = await load_entities(entity_reader, [counter("a")])
    assert verify_seal(row, seal)
    assert not verify_seal(row, plain_seal)
    assert await list_folds(entity_reader) == [FoldRow("counter", 1, seal_name(seal))]


async def test_commands_are_found_by_id_with_every_aggregate_they_were_given_to(
    partition, project_entities, entity_reader, monkeypatch
):
    partition.raise_("a", 1, 2, cause_id="c1")
    partition.raise_("b", 1, cause_id="c2")
    partition.raise_("a", 1, cause_id="c1", tenant="other")
    await project_entities(partition)
    monkeypatch.setattr(entities_module, "IDS_MAX", 1)
    rows = await find_commands(entity_reader, ["c1", "c2", "unknown"])
    assert sorted((row.command_id, row.aggregate, row.first_offset, row.last_offset) for row in rows) == [
        ("c1", counter("a"), 1, 2),
        ("c1", counter("a", "other"), 4, 4),
        ("c2", counter("b"), 3, 3),
    ]


async def test_the_next_offset_is_where_the_rows_end(partition, project_entities, entity_reader):
    assert await next_offsets(entity_reader, TOPIC, [0]) == {}
    partition.raise_("a", 1, 2)
    await project_entities(partition)
    assert await next_offsets(entity_reader, TOPIC, [0, 1]) == {0: 3}


async def test_due_timers_come_in_their_order_by_partition(project_entities, entity_reader):
    one, two = Counters(), Counters()
    for partition in (one, two):
        partition.claim()
    one.raise_("late", 300)
    one.raise_("soon", 100)
    one.raise_("soon_too", 100)
    one.add(counter("never"), restated(0), tenant="acme")
    two.raise_("elsewhere", 50)
    timers = entity_folds([with_rules(next_timer_ms=lambda state: state.value)])
    await project_entities(one, two, folds=timers)
    due = await due_timers(entity_reader, [0], 301, 10)
    assert due == {0: [(counter("soon"), 100), (counter("soon_too"), 100), (counter("late"), 300)]}
    both = {0: [(counter("soon"), 100)], 1: [(counter("elsewhere"), 50)]}
    assert await due_timers(entity_reader, [1, 0], 300, 1) == both
    assert await due_timers(entity_reader, [0], 100, 10) == {0: []}


async def test_aggregates_that_are_quarantined_or_halted_are_counted_and_listed(
    partition, project_entities, entity_reader
):
    partition.raise_("well", 1)
    partition.add(counter("b"), AggregateQuarantined(error="a bug in decide"), tenant="acme")
    partition.raise_("a", 1)
    partition.seqs[counter("a")] += 1
    partition.raise_("a", 2)
    await project_entities(partition)
    assert await count_quarantined(entity_reader) == 2
    rows = await list_quarantined(entity_reader)
    assert [(row.aggregate, row.halted_offset >= 0) for row in rows] == [(counter("a"), True), (counter("b"), False)]
    assert rows[1].quarantine == "a bug in decide"
    assert [row.aggregate for row in await list_quarantined(entity_reader, 1)] == [counter("a")]


async def test_a_family_is_listed_by_name_page_by_page(partition, project_entities, entity_reader):
    for name in reversed(NAMES):
        partition.raise_(name, 1)
    partition.raise_("a", 1, tenant="other")
    partition.add("tally:acme/a", restated(1), tenant="acme")
    await project_entities(partition, folds=BOTH)
    names, after = [], ""
    while True:
        page = await list_entities(entity_reader, "counter", "acme", limit=3, after=after)
        names += [row.name for row in page.rows]
        if not (after := page.next):
            break
    assert names == sorted(NAMES)
    everyone = await list_entities(entity_reader, "counter", EVERY_TENANT)
    assert [(row.tenant, row.name) for row in everyone.rows][-2:] == [("acme", "é"), ("other", "a")]
    assert await count_entities(entity_reader) == {"counter": len(NAMES) + 1, "tally": 1}
    with pytest.raises(InvalidPageToken):
        await list_entities(entity_reader, "counter", "acme", after="?")


@pytest.mark.parametrize("start", ["a", "a_", "b%", "z!", "", "x", "\x00"])
async def test_a_prefix_is_meant_literally(partition, project_entities, entity_reader, start):
    for name in NAMES:
        partition.raise_(name, 1)
    await project_entities(partition)
    page = await list_entities(entity_reader, "counter", "acme", prefix=start)
    assert [row.name for row in page.rows] == sorted(name for name in NAMES if name.startswith(start))
