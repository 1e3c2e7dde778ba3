"""Rows of a topic whose first events are deleted: no rebuild, and a newer fold takes the states over."""

import asyncio
import json
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.engine.builds import CHANNEL_SUFFIX, CHANNEL_TABLES, Builds
from loomlog.projections.engine.carried_rows import EventsDeleted
from loomlog.projections.engine.read_models import EntityModel
from loomlog.projections.engine.rebuild import rebuild
from loomlog.projections.entities import EntityRow, keyed_seal, plain_seal, verify_seal
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.projector.loop import Projector
from loomlog.services.projector.settings import CHANNEL_TOPIC, ProjectorSettings
from tests.projections.counters import BOTH, TALLY, Counters, raised, restated, with_rules

NEWER = entity_folds([with_rules(version=2), TALLY])
KEY = keyed_seal(b"k" * 32)


class Stage:
    """A log of two counters and a tally, and projectors of it."""

    def __init__(self, options, connection, connecting, prefix: str) -> None:
        self.connection, self.connecting = connection, connecting
        self.settings = ProjectorSettings(
            kafka=KafkaOptions(bootstrap="nowhere:1"),
            postgres=options,
            owner="tests",
            topic=CHANNEL_TOPIC,
            prefix=prefix + CHANNEL_SUFFIX,
            poll_timeout_s=0.02,
        )
        self.builds = Builds(connection, self.settings.prefix, CHANNEL_TABLES)
        self.log = MemoryLog({CHANNEL_TOPIC: 1})
        self.counters = Counters()
        self.counters.claim()
        self.counters.raise_("a", 1, 3)
        self.counters.raise_("b", 2)
        self.counters.add("tally:acme/a", restated(1), tenant="acme")
        self.log.put(CHANNEL_TOPIC, 0, self.counters.outgoing())

    async def open_tail(self, starts):
        return self.log.tail(CHANNEL_TOPIC, starts)

    async def count_partitions(self) -> int:
        return 1

    def delete_events(self) -> int:
        first = len(self.log.records[CHANNEL_TOPIC, 0])
        self.log.delete_before(CHANNEL_TOPIC, 0, first)
        return first

    def append(self, *, name: str, value: int) -> None:
        start = len(self.counters.records)
        self.counters.add(f"counter:acme/{name}", raised(value), tenant="acme")
        self.log.put(CHANNEL_TOPIC, 0, self.counters.outgoing(start))

    async def project(self, model: EntityModel) -> None:
        """Run a projector until it has read everything, and is idle."""
        projector = Projector(
            self.settings,
            connect=self.connecting,
            open_tail=self.open_tail,
            count_partitions=self.count_partitions,
            model=model,
        )
        stop, end = asyncio.Event(), len(self.log.records[CHANNEL_TOPIC, 0])
        task = asyncio.create_task(projector.run(stop))
        async with asyncio.timeout(30):
            while projector.metrics["state"] != "projecting" or await self.position() < end:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)
        stop.set()
        await task

    async def position(self) -> int:
        return (await self.builds.positions((await self.builds.live()).number, CHANNEL_TOPIC)).get(0, 0)

    async def rebuild(self, *families: str, model: EntityModel) -> Any:
        return await rebuild(
            self.connecting,
            self.open_tail,
            CHANNEL_TOPIC,
            1,
            owner="rebuild",
            model=model,
            families=frozenset(families) or None,
            prefix=self.settings.prefix,
        )

    async def rows(self) -> dict[str, EntityRow]:
        schema = self.builds.build((await self.builds.live()).number).schema
        result = await self.connection.execute(f"SELECT * FROM {schema}.entities ORDER BY aggregate")
        return {row.aggregate: row for row in map(EntityRow._make, await result.fetchall())}

    async def values(self) -> dict[str, int]:
        return {
            name: json.loads(row.state)["state"]["value"]
            for name, row in (await self.rows()).items()
            if row.state != "null"
        }


def model(folds=BOTH, seal=plain_seal, **options) -> EntityModel:
    return EntityModel(folds, seal, CHANNEL_TABLES, **options)


@pytest.fixture
async def stage(options, connection, connecting, prefix) -> Stage:
    made = Stage(options, connection, connecting, prefix)
    await made.builds.prepare()
    await made.project(model())
    return made


A, B, T = "counter:acme/a", "counter:acme/b", "tally:acme/a"


async def test_a_whole_log_is_rebuilt_and_one_without_its_first_events_is_not(stage):
    assert (await stage.rebuild(model=model())).equal
    assert (await stage.rebuild("counter", model=model())).equal
    before, first = await stage.rows(), stage.delete_events()
    for families in ((), ("counter",)):
        with pytest.raises(EventsDeleted, match=f"before offset {first} of {CHANNEL_TOPIC}/0 are deleted"):
            await stage.rebuild(*families, model=model())
    assert await stage.rows() == before
    assert [row.state for row in await stage.builds.list_builds()].count("building") == 0


async def test_rows_of_a_newer_fold_are_taken_over_and_go_on(stage):
    before = await stage.rows()
    stage.delete_events()
    stage.append(name="a", value=4)
    await stage.project(model(NEWER))
    rows = await stage.rows()
    assert {name: row.version for name, row in rows.items()} == {A: 2, B: 2, T: 1}
    assert await stage.values() == {A: 4, B: 2, T: 1}
    assert rows[T] == before[T]
    assert (rows[A].seq, rows[B].seq, rows[A].halted_offset) == (3, 1, -1)
    await stage.project(model(NEWER))
    assert await stage.rows() == rows


async def test_with_all_events_a_newer_fold_makes_the_rows_again(stage):
    doubled = with_rules(version=2, evolve=lambda state, event, at_ms: type(state)(value=2 * event.value))
    await stage.project(model(entity_folds([doubled, TALLY])))
    assert await stage.values() == {A: 6, B: 4, T: 1}


async def test_another_key_of_the_installation_seals_the_rows_again(stage):
    stage.delete_events()
    stage.append(name="b", value=3)
    await stage.project(model(seal=KEY, former_seals=[plain_seal]))
    rows = await stage.rows()
    assert all(verify_seal(row, KEY) for row in rows.values())
    assert await stage.values() == {A: 3, B: 3, T: 1}


async def test_a_row_that_was_edited_or_cannot_be_read_is_not_taken_over_and_its_aggregate_halts(stage):
    schema = stage.builds.build(1).schema
    await stage.connection.execute(f"UPDATE {schema}.entities SET state = '{{}}' WHERE aggregate = '{A}'")
    stage.delete_events()
    stage.append(name="a", value=4)
    stage.append(name="b", value=3)
    await stage.project(model(NEWER))
    rows = await stage.rows()
    assert (rows[A].version, rows[B].version) == (1, 2)
    assert "was changed by another writer" in rows[A].quarantine
    assert rows[B].quarantine == ""


async def test_a_read_model_that_is_new_tells_what_the_log_has_no_beginning_of(stage, prefix):
    """Postgres was lost: what the deleted events made is lost too, and nothing of it is made up."""
    stage.log.delete_before(CHANNEL_TOPIC, 0, 2)
    stage.append(name="c", value=1)
    await stage.connection.execute(f'DROP SCHEMA "{stage.settings.prefix}" CASCADE')
    await stage.connection.execute(f'DROP SCHEMA "{stage.settings.prefix}_1" CASCADE')
    await stage.builds.prepare()
    await stage.project(model())
    rows = await stage.rows()
    assert "its first events are not in the log" in rows[A].quarantine
    result = await stage.connection.execute(f"SELECT kind FROM {stage.settings.prefix}.projection_problems")
    assert ("offset_gap",) in await result.fetchall()
