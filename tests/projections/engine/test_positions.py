import asyncio

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.projections.engine import positions
from loomlog.projections.engine.builds import ENTITY_TABLES, Builds
from loomlog.projections.engine.entity_projection import EntityProjection
from loomlog.projections.engine.positions import PositionWatch, WaitResult
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from tests.projections import counters
from tests.projections.engine.test_fold import RECORDS
from tests.projections.stories import TOPIC


def at(offset: int, partition: int = 0) -> Position:
    return Position(topic=TOPIC, partition=partition, offset=offset)


@pytest.fixture
async def projection(connection, builds) -> RunProjection:
    projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
    await projection.claim([0])
    return projection


@pytest.fixture
async def watch(connecting, prefix, builds):
    watch = PositionWatch(connecting, prefix)
    task = asyncio.create_task(watch.run())
    yield watch
    task.cancel()
    await asyncio.wait({task})


async def test_a_position_that_was_passed_is_reached_at_once(projection, watch):
    await projection.apply({0: RECORDS[:10]})
    assert await watch.wait(at(9), timeout_s=30) == WaitResult(is_reached=True, lag=0)


async def test_a_reader_wakes_when_the_projection_passes_its_position(projection, watch):
    waiting = asyncio.create_task(watch.wait(at(12), timeout_s=30))
    await projection.apply({0: RECORDS[:12]})
    async with asyncio.timeout(30):
        while watch._next.get((TOPIC, 0)) != 12:
            await asyncio.sleep(0)
    assert not waiting.done()
    await projection.apply({0: RECORDS[12:13]})
    assert await waiting == WaitResult(is_reached=True, lag=0)


async def test_the_wait_is_bounded_and_returns_the_lag(projection, watch):
    await projection.apply({0: RECORDS[:10]})
    assert await watch.wait(at(9), timeout_s=30) == WaitResult(is_reached=True, lag=0)
    assert await watch.wait(at(14), timeout_s=0.05) == WaitResult(is_reached=False, lag=5)
    assert await watch.wait(at(3, partition=7), timeout_s=0) == WaitResult(is_reached=False, lag=4)
    assert watch._waiters == {}


async def test_notifications_alone_are_enough(projection, watch, monkeypatch):
    await projection.apply({0: RECORDS[:1]})
    assert (await watch.wait(at(0), timeout_s=30)).is_reached
    monkeypatch.setattr(positions, "LOOK_WAITING_S", 60.0)
    monkeypatch.setattr(positions, "LOOK_IDLE_S", 60.0)
    await asyncio.wait({asyncio.create_task(watch.wait(at(0), timeout_s=30))})
    waiting = asyncio.create_task(watch.wait(at(5), timeout_s=30))
    await projection.apply({0: RECORDS[1:6]})
    assert (await waiting).is_reached


async def test_without_any_notification_the_cursors_are_read(projection, watch, monkeypatch):
    def silence(self, moved):
        """The commit is not announced."""
        return b"SELECT 1", ()

    monkeypatch.setattr(RunProjection, "_notice", silence)
    waiting = asyncio.create_task(watch.wait(at(5), timeout_s=30))
    await projection.apply({0: RECORDS[:6]})
    assert (await waiting).is_reached


async def test_after_a_lost_connection_waiters_keep_waiting(projection, connecting, prefix, builds, monkeypatch):
    monkeypatch.setattr(positions, "RECONNECT_S", 0.01)
    connections = []

    async def connect():
        connections.append(await connecting())
        return connections[-1]

    watch = PositionWatch(connect, prefix)
    task = asyncio.create_task(watch.run())
    try:
        await projection.apply({0: RECORDS[:1]})
        assert (await watch.wait(at(0), timeout_s=30)).is_reached
        waiting = asyncio.create_task(watch.wait(at(5), timeout_s=30))
        async with await connecting() as other:
            await other.execute("SELECT pg_terminate_backend(%s)", (connections[0].info.backend_pid,))
        await projection.apply({0: RECORDS[1:6]})
        assert (await waiting).is_reached
        assert len(connections) == 2
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_after_a_switch_of_builds_the_positions_are_those_of_the_live_one(connection, projection, watch, builds):
    await projection.apply({0: RECORDS[:10]})
    assert (await watch.wait(at(9), timeout_s=30)).is_reached
    other = await builds.make()
    async with connection.transaction():
        await builds.switch(other)
    second = RunProjection(connection, other, TOPIC, owner="tests")
    await second.claim([0])
    await second.apply({0: RECORDS[:20]})
    assert (await watch.wait(at(19), timeout_s=30)).is_reached
    # The old build no longer counts.
    await projection.apply({0: RECORDS[10:]})
    assert not (await watch.wait(at(len(RECORDS) - 1), timeout_s=0.3)).is_reached


async def test_tables_that_do_not_exist_yet_are_waited_for(connection, connecting, prefix, monkeypatch):
    monkeypatch.setattr(positions, "RECONNECT_S", 0.01)
    watch = PositionWatch(connecting, prefix)
    task = asyncio.create_task(watch.run())
    try:
        assert not (await watch.wait(at(0), timeout_s=0.1)).is_reached
        builds = Builds(connection, prefix)
        await builds.prepare()
        projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
        await projection.claim([0])
        await projection.apply({0: RECORDS[:1]})
        assert (await watch.wait(at(0), timeout_s=30)).is_reached
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_one_watch_waits_for_runs_and_for_entities(
    connecting, connection, prefix, entity_prefix, projection, monkeypatch
):
    monkeypatch.setattr(positions, "LOOK_IDLE_S", 0.01)
    watch = PositionWatch(connecting, prefix, entity_prefix)
    task = asyncio.create_task(watch.run())
    try:
        await projection.apply({0: RECORDS[:3]})
        assert (await watch.wait(at(2), timeout_s=30)).is_reached
        builds = Builds(connection, entity_prefix, ENTITY_TABLES)
        await builds.prepare()
        entities = EntityProjection(connection, builds.build(1), counters.TOPIC, owner="tests", folds=counters.FOLDS)
        await entities.claim([0])
        partition = counters.Counters()
        partition.claim()
        partition.raise_("a", 1)
        position = Position(topic=counters.TOPIC, partition=0, offset=1)
        waiting = asyncio.create_task(watch.wait(position, timeout_s=30))
        await entities.apply(counters.records_of(partition))
        assert await waiting == WaitResult(is_reached=True, lag=0)
        await projection.apply({0: RECORDS[3:6]})
        assert (await watch.wait(at(5), timeout_s=30)).is_reached
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_commits_of_entities_notify(connecting, entity_prefix, entity_builds, project_entities, monkeypatch):
    watch = PositionWatch(connecting, entity_prefix)
    task = asyncio.create_task(watch.run())
    try:
        partition = counters.Counters()
        partition.claim()
        projection = await project_entities(partition)
        position = Position(topic=counters.TOPIC, partition=0, offset=0)
        assert (await watch.wait(position, timeout_s=30)).is_reached
        for name in ("LOOK_WAITING_S", "LOOK_IDLE_S"):
            monkeypatch.setattr(positions, name, 60)
        partition.raise_("a", 1)
        waiting = asyncio.create_task(watch.wait(replace(position, offset=1), timeout_s=30))
        await projection.apply(counters.records_of(partition))
        assert (await waiting).is_reached
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_permanent_error_ends_the_watch(prefix):
    async def refused():
        raise Permanent("connect: password authentication failed", kind="unauthorised")

    with pytest.raises(Permanent, match="password"):
        await PositionWatch(refused, prefix).run()


async def test_too_many_waiters_are_not_queued(projection, watch, monkeypatch):
    monkeypatch.setattr(positions, "WAITERS_MAX", 1)
    first = asyncio.create_task(watch.wait(at(50), timeout_s=30))
    await asyncio.sleep(0)
    assert await watch.wait(at(50), timeout_s=30) == WaitResult(is_reached=False, lag=51)
    first.cancel()
    await asyncio.wait({first})


def test_an_announcement_without_positions_is_not_applied(monkeypatch):
    watch = PositionWatch(lambda: None, "t")
    watch._builds["t_positions"] = 3
    assert watch._apply_notification("t_positions", "3 loom.run.events 0:5 1:7")
    assert watch._next == {(TOPIC, 0): 5, (TOPIC, 1): 7}
    assert not watch._apply_notification("t_positions", "")
    assert not watch._apply_notification("t_positions", "4 loom.run.events 0:9")
    assert watch._next[TOPIC, 0] == 5
