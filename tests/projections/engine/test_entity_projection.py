"""Rows of entities in Postgres: they are those of the fold in memory, whatever happens on the way."""

import hashlib
from dataclasses import replace

import pytest

from loomlog.projections.engine import entity_projection, writer
from loomlog.projections.engine.builds import ENTITY_TABLES
from loomlog.projections.engine.cursors import Fenced
from loomlog.projections.engine.entity_projection import EntityProjection
from loomlog.projections.entities import load_entities
from loomlog.projections.entity_items import list_items
from loomlog.projections.problems import list_problems
from loomlog.services.core.families import Item
from loomlog.services.families import entity_folds as entity_folds_module
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.counters import ITEM_FOLDS as FOLDS
from tests.projections.counters import (
    ITEMIZED,
    TOPIC,
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
from tests.projections.twin import cut, cut_at_random


def records(write):
    partition = Counters()
    partition.claim()
    write(partition)
    return records_of(partition)[0]


def busy_records():
    partition = Counters()
    busy(partition)
    return records_of(partition)[0]


BUSY = busy_records()


async def opened(connection, build, **options) -> EntityProjection:
    projection = EntityProjection(connection, build, TOPIC, owner="tests", **({"folds": FOLDS} | options))
    await projection.claim([0])
    return projection


async def rows_of(connection, build):
    tables = []
    for name in ENTITY_TABLES.compared:
        result = await connection.execute(f"SELECT * FROM {build.schema}.{name}")
        tables.append(sorted(map(tuple, await result.fetchall()), key=repr))
    return tables


async def test_the_rows_in_postgres_are_those_of_the_fold(connection, entity_builds):
    projection = await opened(connection, entity_builds.build(1))
    applied = await projection.apply({0: BUSY})
    twin = folded([BUSY], folds=FOLDS)
    expected = [sorted(map(tuple, table.values()), key=repr) for table in twin.tables]
    assert await rows_of(connection, entity_builds.build(1)) == expected
    assert len(applied.problems) == len(twin.problems)
    assert projection.positions == {0: len(BUSY)}


@pytest.mark.parametrize("seed", range(4))
async def test_however_events_fall_into_polls_two_builds_are_equal(connection, entity_builds, seed):
    await (await opened(connection, entity_builds.build(1))).apply({0: BUSY})
    other = await entity_builds.make()
    polls = [[record] for record in BUSY] if seed == 0 else cut_at_random(BUSY, seed)
    for number, poll in enumerate(polls):
        if number % (seed + 1) == 0:
            projection = await opened(connection, other)
        await projection.apply({0: poll})
    assert await entity_builds.table_hashes(other.number) == await entity_builds.table_hashes(1)


async def test_copied_rows_and_rows_of_a_document_are_the_same(connection, entity_builds, monkeypatch):
    def write(partition):
        for value in range(1, 3):
            for number in range(300):
                partition.raise_(f"c{number}", value, cause_id=f"c{number}")

    many = records(write)
    await (await opened(connection, entity_builds.build(1))).apply({0: many})
    monkeypatch.setattr(writer, "COPY_FROM_ROWS", 10**9)
    other = await entity_builds.make()
    projection = await opened(connection, other)
    for poll in cut(many, [100, 350]):
        await projection.apply({0: poll})
    hashes = await entity_builds.table_hashes(1)
    assert await entity_builds.table_hashes(other.number) == hashes
    assert [hashes[name].rows for name in ("entities", "entity_commands", "entity_items")] == [300, 300, 900]


@pytest.mark.parametrize("copied", [True, False])
async def test_removed_items_are_gone_and_may_come_back(connection, entity_builds, monkeypatch, copied):
    def write(partition):
        for number in range(300):
            partition.raise_(f"c{number}", 1)
        for number in range(300):
            partition.add(counter(f"c{number}"), reset(1), tenant="acme")
        partition.raise_("c7", 5)

    monkeypatch.setattr(writer, "COPY_FROM_ROWS", 250 if copied else 10**9)
    events = records(write)
    projection = await opened(connection, entity_builds.build(1))

    async def last_values():
        result = await connection.execute(
            f"SELECT name, number FROM {entity_builds.build(1).schema}.entity_items WHERE kind = 'last'"
        )
        return dict(await result.fetchall())

    for poll, expected in zip(
        cut(events, [301, 601]), [{f"c{number}": 1 for number in range(300)}, {}, {"c7": 5}], strict=True
    ):
        await projection.apply({0: poll})
        assert await last_values() == expected
    assert (await entity_builds.table_hashes(1))["entity_items"].rows == 302


@pytest.mark.parametrize("copy_from", [2, 250])
async def test_an_item_that_postgres_refuses_halts_its_aggregate_alone(
    connection, entity_builds, entity_reader, monkeypatch, copy_from
):
    def no_json(state, event, envelope):
        document = "{" if state.value == 2 else "{}"
        return [Item(kind="step", id=f"{envelope.aggregate}#{state.value}", document=document)]

    monkeypatch.setattr(entity_folds_module, "items_problem", lambda items: "")
    monkeypatch.setattr(writer, "COPY_FROM_ROWS", copy_from)
    folds = entity_folds([replace(ITEMIZED, items=no_json)])
    projection = await opened(connection, entity_builds.build(1), folds=folds)
    await projection.apply({0: records(lambda p: (p.raise_("a", 1, 2, 3), p.raise_("b", 1)))})
    rows = {row.name: row for row in await load_entities(entity_reader, [counter("a"), counter("b")])}
    assert [(name, row.seq, row.halted_offset) for name, row in sorted(rows.items())] == [("a", 1, 2), ("b", 1, -1)]
    items = await list_items(entity_reader, "counter", "acme", "step", newest_first=False)
    assert [row.id for row in items.rows] == [f"{counter('a')}#1", f"{counter('b')}#1"]


@pytest.mark.parametrize(("name", "value"), [("KNOWN_ENTITIES_MAX", 1), ("KNOWN_BYTES_MAX", 1)])
async def test_an_evicted_aggregate_is_read_again(connection, entity_builds, monkeypatch, name, value):
    await (await opened(connection, entity_builds.build(1))).apply({0: BUSY})
    monkeypatch.setattr(entity_projection, name, value)
    other = await entity_builds.make()
    projection = await opened(connection, other)
    for poll in cut_at_random(BUSY, 11):
        await projection.apply({0: poll})
        assert len(projection._states) <= 1
    assert await entity_builds.table_hashes(other.number) == await entity_builds.table_hashes(1)


async def test_a_known_aggregate_costs_no_read(connection, entity_builds, monkeypatch):
    projection = await opened(connection, entity_builds.build(1))
    events = records(lambda p: p.raise_("a", 1, 2, 3))
    await projection.apply({0: events[:2]})

    async def refused(self, rows):
        raise AssertionError(f"read {rows} although they are cached")

    monkeypatch.setattr(EntityProjection, "_read_states", refused)
    await projection.apply({0: events[2:]})
    assert projection.positions == {0: 4}


async def test_a_fenced_projector_writes_nothing(connection, connecting, entity_builds):
    events = records(lambda p: p.raise_("a", 1, 2, 3))
    async with await connecting() as other:
        slow = await opened(connection, entity_builds.build(1))
        await slow.apply({0: events[:2]})
        quick = await opened(other, entity_builds.build(1))
        before = await entity_builds.table_hashes(1)
        with pytest.raises(Fenced):
            await slow.apply({0: events[2:]})
        assert await entity_builds.table_hashes(1) == before
        await quick.apply({0: events[2:]})
    assert (await rows_of(connection, entity_builds.build(1)))[0][0][5] == 3


async def test_several_partitions_move_in_one_transaction(entity_builds, project_entities):
    one, two = Counters(), Counters()
    busy(one)
    two.claim()
    two.raise_("elsewhere", 1)
    await project_entities(one, two)
    assert await entity_builds.positions(1, TOPIC) == {0: len(one.records), 1: 2}


# --- what must not stop the others -----------------------------------------------------------------------------------

TOO_LONG = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(80))
"""More than a page of an index holds, and nothing to compress."""


@pytest.mark.parametrize("name", [TOO_LONG, "nul\x00"])
@pytest.mark.parametrize("edges", [[], range(9)])
async def test_a_name_that_no_index_takes_makes_its_records_problems(
    connection, entity_builds, entity_reader, name, edges
):
    def write(partition):
        partition.raise_(name, 1, 2, cause_id="c1")
        partition.raise_("good", 1, cause_id="c2")
        partition.raise_(name, 3)
        partition.raise_("good", 2)

    projection = await opened(connection, entity_builds.build(1))
    for poll in cut(records(write), edges):
        await projection.apply({0: poll})
    assert projection.positions == {0: 6}
    rows = await load_entities(entity_reader, [counter("good"), counter(name)])
    assert [(row.name, row.seq) for row in rows] == [("good", 2)]
    assert [problem.offset for problem in await list_problems(entity_reader)] == [1, 2, 4]


async def test_an_edited_row_halts_its_aggregate_and_a_restatement_heals_it(connection, entity_builds, entity_reader):
    partition = Counters()
    partition.claim()
    partition.raise_("a", 1)
    partition.raise_("b", 1)
    build = entity_builds.build(1)
    await (await opened(connection, build)).apply(records_of(partition))
    await connection.execute(f"UPDATE {build.schema}.entities SET due_ms = 5 WHERE name = 'a'")
    partition.raise_("a", 2)
    partition.raise_("b", 2)
    await (await opened(connection, build)).apply(records_of(partition))
    rows = {row.name: row for row in await load_entities(entity_reader, [counter("a"), counter("b")])}
    assert (rows["a"].halted_offset, rows["a"].seq, rows["b"].seq) == (3, 1, 2)
    assert "changed by another writer" in rows["a"].quarantine
    assert [row.kind for row in await list_problems(entity_reader)] == ["unusable_row"]
    partition.add(counter("a"), restated(7), raised(8), tenant="acme")
    await (await opened(connection, build)).apply(records_of(partition))
    (row,) = await load_entities(entity_reader, [counter("a")])
    assert (row.quarantine, row.seq) == ("", 4)


async def test_a_stored_state_that_the_fold_cannot_read_halts_its_aggregate(connection, entity_builds, entity_reader):
    events = records(lambda p: p.raise_("a", 1, 2))
    await (await opened(connection, entity_builds.build(1))).apply({0: events[:2]})
    changed = with_rules(state=int)
    await (await opened(connection, entity_builds.build(1), folds=entity_folds([changed]))).apply({0: events[2:]})
    (row,) = await load_entities(entity_reader, [counter("a")])
    assert (row.seq, row.halted_offset) == (1, 2)
    assert "cannot be read" in row.quarantine
