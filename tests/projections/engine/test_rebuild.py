import asyncio
from dataclasses import replace

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.engine import rebuild as rebuild_module
from loomlog.projections.engine.builds import RUN_TABLES, VERSION, Builds
from loomlog.projections.engine.read_models import RunModel
from loomlog.projections.engine.rebuild import RebuildReport, rebuild
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.run_queries import RunFilter, list_runs
from tests.projections.stories import TOPIC, Partition, asking, eventful, many_runs


def a_log(*, runs: int = 40) -> MemoryLog:
    log = MemoryLog({TOPIC: 2})
    for number in range(2):
        partition = Partition()
        partition.claim()
        if number:
            eventful(partition)
            asking(partition)
        many_runs(partition, [f"r_{number}_{n:03d}" for n in range(runs)], at_once=10)
        log.put(TOPIC, number, partition.outgoing())
    return log


class Rebuilding:
    """A log, its live projection, and a way to rebuild it."""

    def __init__(self, connection, connecting, prefix, log) -> None:
        self.connection, self.connecting, self.prefix, self.log = connection, connecting, prefix, log
        self.builds = Builds(connection, prefix)
        self.live = RunProjection(connection, self.builds.build(1), TOPIC, owner="live")

    async def project(self, upto: dict[int, int] | None = None) -> None:
        """The live projection, up to these offsets."""
        polled = {p: self.log.records[TOPIC, p][: (upto or {}).get(p)] for p in (0, 1)}
        await self.live.apply(polled)

    async def rebuild(self, **options) -> RebuildReport:
        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        return await rebuild(self.connecting, open_tail, TOPIC, 2, owner="rebuild", prefix=self.prefix, **options)


@pytest.fixture
async def it(connection, connecting, builds, prefix) -> Rebuilding:
    rebuilding = Rebuilding(connection, connecting, prefix, a_log())
    await rebuilding.live.claim([0, 1])
    return rebuilding


async def test_a_rebuild_equals_the_live_build_and_takes_its_place(it, reader):
    await it.project()
    progress = []
    before = (await list_runs(reader, "default", RunFilter())).rows
    report = await it.rebuild(on_progress=progress.append)
    assert (report.equal, report.switched, report.build, report.replaced) == (True, True, 2, 1)
    assert all(live == new and live.rows >= 0 for live, new in report.tables.values())
    assert report.tables["runs"][0].rows == 84
    assert report.events == progress[-1].events > 900
    assert progress[-1].remaining == 0
    assert [(row.number, row.state) for row in await it.builds.list_builds()] == [(1, "previous"), (2, "live")]
    assert (await list_runs(reader, "default", RunFilter())).rows == before


async def test_the_new_build_is_never_ahead_of_the_live_one(it):
    upto = {0: 100, 1: 37}
    await it.project(upto)
    report = await it.rebuild()
    assert report.switched
    assert await it.builds.positions(report.build, TOPIC) == upto


async def test_the_live_projector_continues_meanwhile_and_nothing_is_lost(it, connecting, reader, monkeypatch):
    monkeypatch.setattr(rebuild_module, "POLL_RECORDS", 40)
    monkeypatch.setattr(rebuild_module, "CLOSE_EVENTS", 5)
    counts = set()
    stopped = asyncio.Event()

    async def keep_projecting() -> None:
        at = 0
        while not stopped.is_set():
            at += 9
            await it.project({0: at, 1: at})
            await asyncio.sleep(0)

    async def keep_reading() -> None:
        last = 0
        while not stopped.is_set():
            count = len((await list_runs(reader, "default", RunFilter())).rows)
            assert count >= last, "a reader saw the past"
            last = count
            counts.add(count)
            await asyncio.sleep(0)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_projecting())
        tasks.create_task(keep_reading())
        report = await it.rebuild()
        stopped.set()
    assert report.switched
    assert report.equal
    assert len(counts) > 3
    second = RunProjection(it.connection, it.builds.build(2), TOPIC, owner="next")
    await second.claim([0, 1])
    await second.apply({p: it.log.records[TOPIC, p] for p in (0, 1)})
    await it.project()
    assert await it.builds.table_hashes(1) == await it.builds.table_hashes(2)


async def test_at_the_switch_the_live_build_holds_still_and_both_are_at_one_position(
    it, connecting, prefix, monkeypatch
):
    at_switch = []
    switch = Builds.switch

    async def watched(self, build):
        async with await connecting() as other:
            theirs = Builds(other, prefix)
            before = await theirs.positions(1, TOPIC)
            await asyncio.sleep(0.05)
            at_switch.append((before, await theirs.positions(1, TOPIC), await theirs.positions(build.number, TOPIC)))
        await switch(self, build)

    monkeypatch.setattr(Builds, "switch", watched)
    monkeypatch.setattr(rebuild_module, "CLOSE_EVENTS", 5)
    await it.project({0: 5, 1: 5})
    stopped = asyncio.Event()

    async def keep_projecting() -> None:
        at = 5
        while not stopped.is_set():
            at += 1
            await it.project({0: at, 1: at})
            await asyncio.sleep(0)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_projecting())
        await it.rebuild()
        stopped.set()
    ((before, after, new),) = at_switch
    assert before == after == new


async def test_a_damaged_live_build_is_reported_and_nothing_is_switched(it, reader):
    await it.project()
    transcript = f"{it.builds.build(1).schema}.transcript"
    damage = await it.connection.execute(f"DELETE FROM {transcript} WHERE run_id = 'r_0_007' AND type = 'tool_call'")
    assert damage.rowcount > 0
    report = await it.rebuild()
    assert (report.equal, report.switched) == (False, False)
    assert [name for name, (live, new) in report.tables.items() if live != new] == ["transcript"]
    assert report.tables["transcript"][1].rows == report.tables["transcript"][0].rows + damage.rowcount
    assert [(row.number, row.state) for row in await it.builds.list_builds()] == [(1, "live"), (2, "building")]
    forced = await it.rebuild(require_equal=False)
    assert (forced.equal, forced.switched, forced.build) == (False, True, 3)


async def test_a_build_of_another_version_may_differ(it):
    await it.project()
    await it.connection.execute(f"UPDATE {it.builds.build(1).schema}.runs SET effort = 'low'")
    another = RunModel()
    another.tables = replace(RUN_TABLES, version=VERSION + 1)
    report = await it.rebuild(model=another)
    assert (report.equal, report.switched) == (False, True)
    assert (await it.builds.live()).version == VERSION + 1


async def test_older_builds_are_dropped_and_the_previous_one_is_kept(it):
    await it.project()
    for _ in range(3):
        report = await it.rebuild()
    assert list(report.dropped) == [2]
    assert [(row.number, row.state) for row in await it.builds.list_builds()] == [(3, "previous"), (4, "live")]


async def test_two_rebuilds_at_once_are_refused(it, connecting, prefix):
    async with await connecting() as other:
        assert await Builds(other, prefix).reserve_rebuild()
        with pytest.raises(Transient, match="another rebuild"):
            await it.rebuild()


async def test_a_broker_that_is_away_ends_the_rebuild(it, monkeypatch):
    await it.project()
    monkeypatch.setattr(rebuild_module, "STALLED_S", 0.02)
    monkeypatch.setattr(rebuild_module, "POLL_TIMEOUT_S", 0.01)
    it.log = MemoryLog({TOPIC: 2})
    with pytest.raises(Transient, match="is the broker there"):
        await it.rebuild()
    assert (await it.builds.live()).number == 1


async def test_an_empty_system_can_be_rebuilt(it):
    report = await it.rebuild()
    assert (report.switched, report.events) == (True, 0)
