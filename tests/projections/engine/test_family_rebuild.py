"""A family is rebuilt by itself: its rows change all at once, and no other row is touched."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.engine import rebuild as rebuild_module
from loomlog.projections.engine.builds import ENTITY_TABLES, Builds
from loomlog.projections.engine.cursors import Fenced
from loomlog.projections.engine.family_folds import NewerFold, outdated_families
from loomlog.projections.engine.read_models import EntityModel
from loomlog.projections.engine.rebuild import RebuildReport, rebuild
from loomlog.projections.entities import keyed_seal, list_entities, list_folds, load_entities, plain_seal, verify_seal
from loomlog.projections.entity_items import list_items
from loomlog.projections.problems import list_problems
from loomlog.projections.tables import EVERY_TENANT
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.counters import FOLDS, ITEMIZED, TALLY, TOPIC, Counters, counter, raised, restated
from tests.projections.counters import ITEM_FOLDS as BOTH
from tests.projections.stories import TOPIC as RUN_TOPIC
from tests.projections.stories import Partition, many_runs

DOUBLED = replace(ITEMIZED.rules, version=2, evolve=lambda state, event, at_ms: replace_value(state, event))
NEWER = entity_folds([replace(ITEMIZED, rules=DOUBLED), TALLY])
"""The family with another fold: it counts twice."""


def replace_value(state: Any, event: Any) -> Any:
    return type(state)(value=2 * event.value)


def a_log() -> MemoryLog:
    log = MemoryLog({TOPIC: 2})
    for number in range(2):
        partition = Counters()
        partition.claim()
        for name in "abc":
            partition.raise_(f"{name}{number}", 1, 2, cause_id=f"{name}{number}")
            partition.add(f"tally:acme/{name}{number}", restated(1), tenant="acme", cause_id=f"t{name}{number}")
        partition.add(counter(f"bad{number}"), raised(1), tenant="evil")
        partition.add(f"tally:acme/bad{number}", raised(1), tenant="evil")
        partition.records.append(b"garbage")
        log.put(TOPIC, number, partition.outgoing())
    return log


@dataclass
class Stage:
    connection: Any
    connecting: Any
    prefix: str
    builds: Builds
    log: MemoryLog
    live: Any

    async def rebuild(self, *families: str, model: EntityModel, **options) -> RebuildReport:
        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        return await rebuild(
            self.connecting,
            open_tail,
            TOPIC,
            2,
            owner="rebuild",
            model=model,
            families=frozenset(families) or None,
            prefix=self.prefix,
            **options,
        )

    async def project(self) -> None:
        await self.live.apply({number: self.log.records[TOPIC, number] for number in range(2)})

    async def versions_of(self, table: str, family: str, *, column: str) -> set[tuple]:
        """Physical versions of the rows of a family: an untouched row keeps its own."""
        where = f"split_part({column}, ':', 1) = %s"
        result = await self.connection.execute(
            f"SELECT {column}, xmin::text, ctid::text FROM {self.builds.build(1).schema}.{table} WHERE {where}",
            (family,),
        )
        return set(await result.fetchall())


@pytest.fixture
async def it(connection, connecting, entity_prefix, entity_builds) -> Stage:
    live = EntityModel(BOTH).projection(connection, entity_builds.build(1), TOPIC, owner="live", codec=None)
    await live.claim([0, 1])
    stage = Stage(connection, connecting, entity_prefix, entity_builds, a_log(), live)
    await stage.project()
    return stage


async def values_of(reader) -> dict[str, int]:
    page = await list_entities(reader, "counter", EVERY_TENANT)
    return {
        row.name: BOTH["counter"].decode(row.state.encode()).state.value for row in page.rows if row.state != "null"
    }


async def items_of(reader, family: str = "counter") -> set[tuple[str, float | None]]:
    pages = [await list_items(reader, family, EVERY_TENANT, kind) for kind in ("step", "last")]
    return {(row.id.partition("/")[2], row.number) for page in pages for row in page.rows}


ITEMS = {(f"{name}{n}#{step}", 0.25) for name in "abc" for n in range(2) for step in (1, 2)}
LAST = {(f"{name}{n}", 2) for name in "abc" for n in range(2)}


async def test_the_items_of_a_family_with_another_fold_are_made_again(it, entity_reader):
    assert await items_of(entity_reader) == ITEMS | LAST
    await it.connection.execute(
        f"INSERT INTO {it.builds.build(1).schema}.entity_items VALUES "
        "('tally', 'acme', 'tally:acme/a0', 'a0', 'step', 'counter:acme/a0#1', '', '', 1, 0, 0, 1, 1, '{}', 0)"
    )
    tallies = await it.versions_of("entity_items", "tally", column="aggregate")
    assert len(tallies) == 1
    report = await it.rebuild("counter", model=EntityModel(NEWER))
    assert (report.switched, report.tables["entity_items"][0].rows) == (True, 18)
    doubled = {(f"{name}{n}#{step}", 0.25) for name in "abc" for n in range(2) for step in (2, 4)}
    assert await items_of(entity_reader) == doubled | {(name, 4) for name, _ in LAST}
    assert await it.versions_of("entity_items", "tally", column="aggregate") == tallies


@pytest.mark.parametrize(
    "damage", ["DELETE FROM {}.entity_items WHERE number = 0.25", "UPDATE {}.entity_items SET key_b = 'x'"]
)
async def test_damaged_items_are_found_and_made_again(it, entity_reader, damage):
    await it.connection.execute(damage.format(it.builds.build(1).schema))
    report = await it.rebuild("counter", model=EntityModel(BOTH))
    assert (report.switched, report.equal) == (False, False)
    assert report.tables["entities"][0] == report.tables["entities"][1]
    assert (await it.rebuild("counter", model=EntityModel(BOTH), require_equal=False)).switched
    assert await items_of(entity_reader) == ITEMS | LAST
    assert (await it.rebuild("counter", model=EntityModel(BOTH))).equal


async def test_a_rebuild_of_everything_and_a_lost_database_give_the_same_items(it, entity_reader):
    before = (await it.builds.table_hashes(1))["entity_items"]
    report = await it.rebuild(model=EntityModel(BOTH))
    assert (report.switched, report.equal) == (True, True)
    assert (await it.builds.table_hashes(2))["entity_items"] == before
    for build in (1, 2):
        await it.connection.execute(f"DROP SCHEMA {it.builds.build(build).schema} CASCADE")
    await it.connection.execute(f"DROP SCHEMA {it.prefix} CASCADE")
    await it.builds.prepare()
    live = EntityModel(BOTH).projection(it.connection, it.builds.build(1), TOPIC, owner="live", codec=None)
    await live.claim([0, 1])
    await live.apply({number: it.log.records[TOPIC, number] for number in range(2)})
    assert (await it.builds.table_hashes(1))["entity_items"] == before
    assert await items_of(entity_reader) == ITEMS | LAST


async def test_the_rows_of_a_family_with_another_fold_are_made_again_and_no_others(it, entity_reader):
    before = await it.builds.table_hashes(1)
    tallies = await it.versions_of("entities", "tally", column="aggregate")
    tally_problems = await it.versions_of("projection_problems", "tally", column="run_id")
    commands = await it.versions_of("entity_commands", "counter", column="aggregate")
    assert len(tallies) == 8
    assert len(tally_problems) == 2
    report = await it.rebuild("counter", model=EntityModel(NEWER))
    assert (report.switched, report.equal, report.families) == (True, False, frozenset({"counter"}))
    assert set((await values_of(entity_reader)).values()) == {4}
    rows = await load_entities(entity_reader, [counter("a0"), counter("bad0"), "tally:acme/a0"])
    assert {row.name: row.version for row in rows if row.family == "counter"} == {"a0": 2, "bad0": 2}
    assert all(verify_seal(row, plain_seal) for row in rows)
    assert await it.versions_of("entities", "tally", column="aggregate") == tallies
    assert await it.versions_of("projection_problems", "tally", column="run_id") == tally_problems
    assert await it.versions_of("entity_commands", "counter", column="aggregate") == commands
    after = await it.builds.table_hashes(1)
    assert {name: table.rows for name, table in after.items()} == {name: table.rows for name, table in before.items()}
    assert after["projection_problems"] == before["projection_problems"]
    assert {fold.family: fold.version for fold in await list_folds(entity_reader)} == {"counter": 2, "tally": 1}
    assert [(row.number, row.state) for row in await it.builds.list_builds()] == [(1, "live")]


async def test_readers_see_all_old_rows_or_all_new_ones(it, entity_reader):
    seen = set()
    stopped = asyncio.Event()

    async def keep_reading() -> None:
        while not stopped.is_set():
            seen.add(frozenset((await values_of(entity_reader)).values()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_reading())
        await it.rebuild("counter", model=EntityModel(NEWER))
        assert set((await values_of(entity_reader)).values()) == {4}
        stopped.set()
    assert seen <= {frozenset({2}), frozenset({4})}


async def test_a_rebuild_with_the_same_fold_finds_equal_rows(it):
    before = await it.builds.table_hashes(1)
    report = await it.rebuild("counter", model=EntityModel(BOTH))
    assert (report.switched, report.equal) == (True, True)
    assert set(report.tables) == {"entities", "entity_items", "projection_problems"}
    assert report.tables["entities"][0].rows == 8
    assert await it.builds.table_hashes(1) == before


async def test_a_damaged_row_is_found_and_replaced_only_if_a_difference_is_allowed(it, entity_reader):
    schema = it.builds.build(1).schema
    await it.connection.execute(f"UPDATE {schema}.entities SET seq = 99 WHERE name = 'a0' AND family = 'counter'")
    report = await it.rebuild("counter", model=EntityModel(BOTH))
    assert (report.switched, report.equal) == (False, False)
    (row,) = await load_entities(entity_reader, [counter("a0")])
    assert not verify_seal(row, plain_seal)
    assert (await it.rebuild("counter", model=EntityModel(BOTH), require_equal=False)).switched
    (row,) = await load_entities(entity_reader, [counter("a0")])
    assert row.seq == 2
    assert verify_seal(row, plain_seal)


async def test_the_live_projector_is_fenced_because_what_it_has_cached_is_void(it):
    await it.rebuild("counter", model=EntityModel(NEWER))
    partition = Counters()
    partition.term, partition.seqs[counter("a0")] = 0, 2
    partition.raise_("a0", 3)
    it.log.put(TOPIC, 0, partition.outgoing())
    with pytest.raises(Fenced):
        await it.project()


async def test_events_that_come_during_the_rebuild_are_in_the_new_rows(it, entity_reader, monkeypatch):
    compare = rebuild_module._Rebuild._compare

    async def compare_while_events_come(self):
        result = await compare(self)
        partition = Counters()
        partition.term, partition.seqs[counter("a0")] = 0, 2
        partition.raise_("a0", 3)
        it.log.put(TOPIC, 0, partition.outgoing())
        await it.project()
        return result

    monkeypatch.setattr(rebuild_module._Rebuild, "_compare", compare_while_events_come)
    assert (await it.rebuild("counter", model=EntityModel(NEWER))).switched
    (row,) = await load_entities(entity_reader, [counter("a0")])
    assert (row.seq, row.version) == (3, 2)
    assert BOTH["counter"].decode(row.state.encode()).state.value == 6
    assert (await it.builds.positions(1, TOPIC))[0] == len(it.log.records[TOPIC, 0])


async def test_several_families_at_once_under_another_key(it, connection, entity_reader):
    seal = keyed_seal(b"k" * 32)
    schema = it.builds.build(1).schema
    outdated = await outdated_families(connection, schema, BOTH, seal)
    assert outdated == {"counter", "tally"}
    report = await it.rebuild(*outdated, model=EntityModel(BOTH, seal))
    assert report.switched
    rows = (await list_entities(entity_reader, "tally", EVERY_TENANT)).rows
    assert len(rows) == 8
    assert all(verify_seal(row, seal) and not verify_seal(row, plain_seal) for row in rows)
    assert await outdated_families(connection, schema, BOTH, seal) == frozenset()


async def test_a_family_that_was_unknown_is_outdated_once_it_is_known(it, connection, entity_reader):
    schema = it.builds.build(1).schema
    without = EntityModel(FOLDS).projection(connection, it.builds.build(1), TOPIC, owner="live", codec=None)
    await without.claim([0, 1])
    assert [fold.family for fold in await list_folds(entity_reader)] == ["counter"]
    assert await outdated_families(connection, schema, FOLDS, plain_seal) == frozenset()
    partition = Counters()
    partition.term, partition.seqs["tally:acme/a0"] = 0, 1
    partition.add("tally:acme/a0", restated(2), tenant="acme")
    it.log.put(TOPIC, 0, partition.outgoing())
    await without.apply({number: it.log.records[TOPIC, number] for number in range(2)})
    (row,) = await load_entities(entity_reader, ["tally:acme/a0"])
    assert "no family of this installation" in row.quarantine
    assert await outdated_families(connection, schema, BOTH, plain_seal) == {"tally"}
    assert (await it.rebuild("tally", model=EntityModel(BOTH))).switched
    (row,) = await load_entities(entity_reader, ["tally:acme/a0"])
    assert (row.quarantine, row.seq) == ("", 2)
    assert "unknown_family" not in {problem.kind for problem in await list_problems(entity_reader)}


async def test_a_process_with_an_older_fold_is_told_so(it, connection):
    await it.rebuild("counter", model=EntityModel(NEWER))
    with pytest.raises(NewerFold, match="family counter are of version 2"):
        await outdated_families(connection, it.builds.build(1).schema, BOTH, plain_seal)


async def test_and_neither_can_it_rebuild_them(it):
    await it.rebuild("counter", model=EntityModel(NEWER))
    before = await it.builds.table_hashes(1)
    with pytest.raises(NewerFold):
        await it.rebuild("counter", model=EntityModel(BOTH), require_equal=False)
    assert await it.builds.table_hashes(1) == before


async def test_tables_of_another_version_are_rebuilt_whole(it):
    other = EntityModel(BOTH)
    other.tables = replace(ENTITY_TABLES, version=ENTITY_TABLES.version + 1)
    with pytest.raises(Permanent, match="rebuild all of them"):
        await it.rebuild("counter", model=other)
    report = await it.rebuild(model=other)
    assert (report.switched, (await it.builds.live()).version) == (True, ENTITY_TABLES.version + 1)


async def test_a_rebuild_of_all_entities_switches_builds(it, entity_reader):
    report = await it.rebuild(model=EntityModel(BOTH))
    assert (report.switched, report.equal, report.build, report.families) == (True, True, 2, None)
    assert set(report.tables) == set(ENTITY_TABLES.compared)
    assert [(row.number, row.state) for row in await it.builds.list_builds()] == [(1, "previous"), (2, "live")]
    assert set((await values_of(entity_reader)).values()) == {2}


async def test_neither_runs_nor_entities_are_rebuilt_with_the_other(it, builds, project, connection):
    partition = Partition()
    partition.claim()
    many_runs(partition, ["r_1"])
    await project(partition)
    runs, entities = await builds.table_hashes(1), await it.builds.table_hashes(1)
    await it.rebuild("counter", model=EntityModel(NEWER))
    assert await builds.table_hashes(1) == runs
    assert [row.number for row in await builds.list_builds()] == [1]
    log = MemoryLog({RUN_TOPIC: 1})
    log.put(RUN_TOPIC, 0, partition.outgoing())

    async def open_tail(starts):
        return log.tail(RUN_TOPIC, starts)

    rebuilt = await it.builds.table_hashes(1)
    assert rebuilt != entities
    report = await rebuild(
        it.connecting, open_tail, RUN_TOPIC, 1, owner="rebuild", prefix=it.prefix.removesuffix("_entities")
    )
    assert report.switched
    assert await it.builds.table_hashes(1) == rebuilt
    assert [row.number for row in await it.builds.list_builds()] == [1]
