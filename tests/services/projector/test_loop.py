"""The loop against Postgres, with the log in memory: it waits for lost systems; a bug ends it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog, MemoryTail
from loomlog.connectors.process import sessions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.engine.builds import VERSION, Builds, read_status
from loomlog.projections.engine.read_models import EntityModel
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.entities import load_entities
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.projector import loop as loop_module
from loomlog.services.projector.loop import Projector
from loomlog.services.projector.settings import ProjectorSettings
from tests.projections import counters
from tests.projections.stories import TOPIC, Partition, many_runs
from tests.waiting import until

RUNS = 30


class MoodyTail(MemoryTail):
    """A tail whose broker can go away: polls are empty, requests for end offsets fail."""

    away = False

    async def poll(self, *, timeout_s, max_records=5_000):
        if type(self).away:
            await asyncio.sleep(0.01)
            return {}
        return await super().poll(timeout_s=timeout_s, max_records=max_records)

    async def end_offsets(self):
        if type(self).away:
            raise Transient("end offsets: the broker does not answer", kind="unavailable")
        return await super().end_offsets()


class Stage:
    """A log and any number of projectors of it."""

    def __init__(self, options: PostgresOptions, connecting, prefix: str) -> None:
        self.options, self.connecting, self.prefix = options, connecting, prefix
        self.log = MemoryLog({TOPIC: 1})
        self.partition = Partition()
        self.partition.claim()
        self.stop = asyncio.Event()
        self.connections: list = []
        self.partitions = 1
        self.tail: Callable[[MemoryLog, str, Mapping[int, int]], MemoryTail] = MemoryTail

    def add_runs(self, *names: str) -> None:
        start = len(self.partition.records) if self.log.records[TOPIC, 0] else 0
        many_runs(self.partition, names)
        self.log.put(TOPIC, 0, self.partition.outgoing(start))

    def projector(self, owner: str = "me", **settings) -> Projector:
        async def connect():
            self.connections.append(await self.connecting())
            return self.connections[-1]

        async def open_tail(starts):
            return self.tail(self.log, TOPIC, starts)

        async def count_partitions():
            return self.partitions

        options = {"poll_timeout_s": 0.05, "max_records": 7} | settings
        return Projector(
            ProjectorSettings(
                kafka=KafkaOptions(bootstrap="nowhere:1"),
                postgres=self.options,
                owner=owner,
                topic=TOPIC,
                prefix=self.prefix,
                **options,
            ),
            connect=connect,
            open_tail=open_tail,
            count_partitions=count_partitions,
        )

    async def kill_connections(self) -> None:
        async with await self.connecting() as other:
            for connection in self.connections:
                await other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        self.connections.clear()


@pytest.fixture
async def stage(options, connecting, prefix, monkeypatch):
    monkeypatch.setattr(loop_module, "STATUS_EVERY_S", 0.03)
    monkeypatch.setattr(loop_module, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(sessions, "MAX_S", 0.05)
    stage = Stage(options, connecting, prefix)
    yield stage
    stage.stop.set()


async def run_until(projector: Projector, stage: Stage, condition: Callable[[], bool]) -> None:
    task = asyncio.create_task(projector.run(stage.stop))
    try:
        waiting = asyncio.create_task(until(condition))
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done() or task.exception() is None, task.exception()
        await waiting
    finally:
        stage.stop.set()
        async with asyncio.timeout(30):
            await task


async def alone(builds: Builds, connection, log: MemoryLog):
    """Hashes of a build that one undisturbed projector wrote."""
    build = await builds.make()
    projection = RunProjection(connection, build, TOPIC, owner="alone")
    await projection.claim([0])
    await projection.apply({0: log.records[TOPIC, 0]})
    return await builds.table_hashes(build.number)


async def test_it_projects_new_records_until_the_stop(stage, builds, connection):
    stage.add_runs("r_1", "r_2")
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    await until(lambda: projector.metrics["events"] == 24)
    stage.add_runs("r_3")
    await until(lambda: projector.metrics["events"] == 36)
    stage.stop.set()
    async with asyncio.timeout(30):
        await task
    assert projector.metrics["state"] == "stopped"
    assert (await builds.table_hashes(1))["runs"].rows == 3
    assert await builds.table_hashes(1) == await alone(builds, connection, stage.log)


async def test_it_writes_its_status(stage, builds, reader):
    stage.log.clock_ms = 1
    stage.add_runs("r_1")
    projector = stage.projector("replica-7")
    await run_until(projector, stage, lambda: projector.metrics["events"] == 12 and projector._worst_lag_ms == 0)
    (status,) = await read_status(reader)
    assert status[:4] == (TOPIC, "replica-7", 1, "projecting")
    assert (status.events_behind, status.applied_events) == (0, 12)
    metrics = projector.metrics
    assert (metrics["events_behind"], metrics["build"], metrics["sessions"], metrics["fenced"]) == (0, 1, 1, 0)
    assert metrics["lag_ms"] > 0


async def test_after_a_lost_postgres_connection_no_row_is_lost_or_doubled(stage, builds, connection):
    stage.add_runs(*[f"r_{n}" for n in range(RUNS)])
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    for _ in range(4):
        sessions = projector.metrics["sessions"]
        await until(lambda: bool(stage.connections))
        await stage.kill_connections()
        await until(lambda before=sessions: projector.metrics["sessions"] > before)
    # Not the counter: an acknowledgement may be lost with its connection.
    async with asyncio.timeout(30):
        while await builds.positions(1, TOPIC) != {0: len(stage.partition.records)}:
            await asyncio.sleep(0.005)
    stage.stop.set()
    await task
    assert await builds.table_hashes(1) == await alone(builds, connection, stage.log)


async def test_a_broker_that_is_away_is_waited_for_and_in_the_status(stage, builds, reader, monkeypatch):
    monkeypatch.setattr(MoodyTail, "away", True)
    stage.tail = MoodyTail
    stage.add_runs("r_1")
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    await until(lambda: projector.metrics["sessions"] >= 3)
    (status,) = await read_status(reader)
    assert status.state == "waiting for the broker"
    monkeypatch.setattr(MoodyTail, "away", False)
    await until(lambda: projector.metrics["events"] == 12)
    stage.stop.set()
    await task


async def test_a_topic_that_does_not_exist_yet_is_waited_for(stage, builds):
    stage.partitions = 0
    stage.add_runs("r_1")
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    await until(lambda: projector.metrics["sessions"] >= 2)
    stage.partitions = 1
    await until(lambda: projector.metrics["events"] == 12)
    stage.stop.set()
    await task


async def test_the_same_failure_is_logged_once_per_interval(stage, builds, caplog):
    stage.partitions = 0
    projector = stage.projector()
    with caplog.at_level(logging.WARNING, "loomlog.projector"):
        await run_until(projector, stage, lambda: projector.metrics["sessions"] >= 6)
    messages = [record.getMessage() for record in caplog.records if "does not exist yet" in record.getMessage()]
    assert len(messages) == 1


async def test_a_second_projector_waits_and_takes_over_when_the_first_is_gone(stage, builds, connection):
    stage.add_runs("r_1")
    first, second = stage.projector("first"), stage.projector("second")
    first_stop = asyncio.Event()
    one = asyncio.create_task(first.run(first_stop))
    await until(lambda: first.metrics["events"] == 12)
    two = asyncio.create_task(second.run(stage.stop))
    await until(lambda: second.metrics["state"] == "standing by")
    stage.add_runs("r_2")
    await until(lambda: first.metrics["events"] == 24)
    assert second.metrics["events"] == 0
    first_stop.set()
    await one
    stage.add_runs("r_3")
    await until(lambda: second.metrics["events"] == 12)
    stage.stop.set()
    await two
    assert await builds.table_hashes(1) == await alone(builds, connection, stage.log)


async def test_projectors_without_the_lock_fence_each_other_and_the_rows_are_right(
    stage, builds, connection, monkeypatch
):
    async def always(self, topic):
        return True

    monkeypatch.setattr(Builds, "reserve_projecting", always)
    stage.add_runs(*[f"r_{n}" for n in range(RUNS)])
    projectors = [stage.projector(f"p{n}", max_records=3) for n in range(3)]
    tasks = [asyncio.create_task(projector.run(stage.stop)) for projector in projectors]
    done = RUNS * 12

    def all_projected() -> bool:
        return sum(projector.metrics["events"] for projector in projectors) >= done

    await until(all_projected)
    stage.stop.set()
    await asyncio.gather(*tasks)
    assert sum(projector.metrics["fenced"] for projector in projectors) > 0
    assert sum(projector.metrics["events"] for projector in projectors) == done
    assert await builds.table_hashes(1) == await alone(builds, connection, stage.log)


async def test_a_stop_finishes_the_transaction_under_way(stage, builds, connection):
    stage.add_runs("r_1")
    projector = stage.projector(max_records=1_000)
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {builds.build(1).schema}.runs IN SHARE MODE")
        task = asyncio.create_task(projector.run(stage.stop))
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        async with asyncio.timeout(30):
            while True:
                result = await connection.execute(waits, (f"{builds.build(1).schema}.runs",))
                if (await result.fetchone())[0]:
                    break
        stage.stop.set()
        for _ in range(10):  # each round trip is time enough to give up
            result = await connection.execute(waits, (f"{builds.build(1).schema}.runs",))
            assert (await result.fetchone())[0]
            assert not task.done()
    await task
    assert await builds.positions(1, TOPIC) == {0: 13}
    assert (await builds.table_hashes(1))["runs"].rows == 1


async def test_it_moves_to_another_build_when_that_becomes_live(stage, builds, connection):
    stage.add_runs("r_1")
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    await until(lambda: projector.metrics["events"] == 12)
    other = await builds.make()
    async with connection.transaction():
        await builds.switch(other)
    await until(lambda: projector.metrics["build"] == other.number and projector.metrics["events"] == 24)
    stage.stop.set()
    await task
    assert await builds.table_hashes(other.number) == await builds.table_hashes(1)


async def test_a_projector_that_slept_through_two_rebuilds_continues_with_the_live_build(
    stage, builds, connection, caplog
):
    caplog.set_level("WARNING")
    stage.add_runs("r_1")
    projector = stage.projector()

    async def rebuilt_twice(poll, self, **options):
        polled = await poll(self, **options)
        if polled and projector.metrics["events"] and not stage.slept:
            stage.slept = True
            for _ in range(2):
                async with connection.transaction():
                    await builds.switch(await builds.make())
                await builds.drop_unused()
        return polled

    stage.slept = False
    stage.tail = type("Sleepy", (MemoryTail,), {"poll": lambda self, **o: rebuilt_twice(MemoryTail.poll, self, **o)})

    def two_more() -> bool:
        if projector.metrics["events"] >= 12 and len(stage.partition.records) < 20:
            stage.add_runs("r_2")
        return projector.metrics["build"] == 3 and projector.metrics["events_behind"] == 0 and stage.slept

    await run_until(projector, stage, two_more)
    assert [row.number for row in await builds.list_builds()] == [2, 3]
    assert await builds.table_hashes(3) == await alone(builds, connection, stage.log)
    assert caplog.text == ""


async def test_a_live_build_without_its_tables_is_a_permanent_error(stage, builds, connection, prefix):
    stage.add_runs("r_1")
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    await until(lambda: projector.metrics["events"] == 12)
    await connection.execute(f'DROP SCHEMA "{prefix}_1" CASCADE')
    stage.add_runs("r_2")
    with pytest.raises(Permanent, match="rebuild"):
        async with asyncio.timeout(30):
            await task


async def test_a_build_of_an_older_version_is_rebuilt_first(stage, builds, connection, prefix):
    stage.add_runs("r_1", "r_2")
    before = RunProjection(connection, builds.build(1), TOPIC, owner="before")
    await before.claim([0])
    await before.apply({0: stage.log.records[TOPIC, 0][:20]})
    await connection.execute(f"UPDATE {prefix}.builds SET version = {VERSION - 1}")
    projector = stage.projector()
    await run_until(projector, stage, lambda: projector.metrics["build"] == 2 and projector.metrics["events"] >= 5)
    assert [(row.number, row.state, row.version) for row in await builds.list_builds()] == [
        (1, "previous", VERSION - 1),
        (2, "live", VERSION),
    ]
    assert await builds.positions(2, TOPIC) == {0: 25}


async def test_an_older_projector_writes_nothing_to_newer_rows(stage, builds, connection, prefix, caplog):
    await connection.execute(f"UPDATE {prefix}.builds SET version = {VERSION + 1}")
    stage.add_runs("r_1")
    projector = stage.projector()
    with caplog.at_level(logging.WARNING, "loomlog.projector"):
        await run_until(projector, stage, lambda: projector.metrics["sessions"] >= 3)
    assert "upgrade it" in caplog.text
    assert projector.metrics["events"] == 0
    assert len(await builds.list_builds()) == 1


async def test_a_stop_during_a_rebuild_leaves_the_live_build(stage, builds, connection, prefix, monkeypatch):
    await connection.execute(f"UPDATE {prefix}.builds SET version = {VERSION - 1}")
    started = asyncio.Event()

    async def endless(self, partitions, **options):
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Projector, "rebuild", endless)
    projector = stage.projector()
    task = asyncio.create_task(projector.run(stage.stop))
    async with asyncio.timeout(30):
        await started.wait()
        stage.stop.set()
        await task
    assert (await builds.live()).number == 1


async def test_a_permanent_error_ends_it(stage, builds):
    projector = stage.projector()

    async def refused():
        raise Permanent("connect: password authentication failed", kind="unauthorised")

    projector._connect = refused
    with pytest.raises(Permanent, match="password"):
        await projector.run(stage.stop)


async def test_a_bug_ends_it(stage, builds, monkeypatch):
    async def broken(self, polled):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(RunProjection, "apply", broken)
    stage.add_runs("r_1")
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            await stage.projector().run(stage.stop)


async def test_a_frame_written_twice_ends_it(stage, builds, connection):
    stage.add_runs("r_1")
    schema = builds.build(1).schema
    await connection.execute(
        f"INSERT INTO {schema}.transcript VALUES ('r_1', 256, 'default', 's_1', 1, 'user_input', '{{}}', NULL, 1)"
    )
    async with asyncio.timeout(30):
        with pytest.raises(Permanent, match="UniqueViolation"):
            await stage.projector().run(stage.stop)
    assert (await builds.table_hashes(1))["runs"].rows == 0


async def test_unreadable_records_are_logged(stage, builds, caplog):
    stage.partition.records.append(b"garbage")
    stage.add_runs("r_1")
    projector = stage.projector()
    with caplog.at_level(logging.WARNING, "loomlog.projector"):
        await run_until(projector, stage, lambda: projector.metrics["events"] == 12)
    assert projector.metrics["problems"] == 1
    assert "loom.run.events partition 0 offset 1 could not be projected: undecodable: " in caplog.text
    assert "loomlog projections problems" in caplog.text


# --- entities --------------------------------------------------------------------------------------------------------


class EntityStage(Stage):
    """A log of counters and any number of projectors of it, each with its folds."""

    def __init__(self, options: PostgresOptions, connecting, prefix: str) -> None:
        super().__init__(options, connecting, prefix)
        self.log = MemoryLog({counters.TOPIC: 1})

    def entity_projector(self, folds, **settings) -> Projector:
        async def open_tail(starts):
            return MemoryTail(self.log, counters.TOPIC, starts)

        async def count_partitions():
            return 1

        made = self.projector(**settings)
        return Projector(
            replace(made._settings, topic=counters.TOPIC),
            connect=self.connecting,
            open_tail=open_tail,
            count_partitions=count_partitions,
            model=EntityModel(folds),
        )


@pytest.fixture
async def entity_stage(stage, options, connecting, entity_prefix):
    made = EntityStage(options, connecting, entity_prefix)
    partition = counters.Counters()
    partition.claim()
    partition.raise_("a", 1, 2)
    partition.add("tally:acme/a", counters.restated(1), tenant="acme")
    made.log.put(counters.TOPIC, 0, partition.outgoing())
    yield made
    made.stop.set()


NEWER = entity_folds([counters.with_rules(version=2), counters.TALLY])


async def test_a_family_with_a_new_fold_is_rebuilt_first_and_alone(
    entity_stage, entity_builds, entity_reader, connection
):
    first = entity_stage.entity_projector(counters.BOTH)
    await run_until(first, entity_stage, lambda: first.metrics["events"] == 3)
    read = f"SELECT xmin::text FROM {entity_builds.build(1).schema}.entities WHERE family = 'tally'"
    untouched = await (await connection.execute(read)).fetchall()
    entity_stage.stop = asyncio.Event()
    second = entity_stage.entity_projector(NEWER)
    await run_until(second, entity_stage, lambda: second.metrics["state"] == "projecting")
    rows = await load_entities(entity_reader, [counters.counter("a"), "tally:acme/a"])
    assert {row.family: row.version for row in rows} == {"counter": 2, "tally": 1}
    assert await (await connection.execute(read)).fetchall() == untouched
    assert [(row.number, row.state) for row in await entity_builds.list_builds()] == [(1, "live")]


async def test_a_projector_with_an_older_fold_writes_nothing(entity_stage, entity_builds, caplog):
    newer = entity_stage.entity_projector(NEWER)
    await run_until(newer, entity_stage, lambda: newer.metrics["events"] == 3)
    before = await entity_builds.table_hashes(1)
    entity_stage.stop = asyncio.Event()
    older = entity_stage.entity_projector(counters.BOTH)
    with caplog.at_level(logging.WARNING, "loomlog.projector"):
        await run_until(older, entity_stage, lambda: older.metrics["sessions"] >= 3)
    assert "rows of the family counter are of version 2" in caplog.text
    assert await entity_builds.table_hashes(1) == before
