"""The loop that writes the feed of memory: each change once, whatever happens to the writer; only for the retention."""

import asyncio
import time

import pytest

from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.process import sessions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.memory_feed.tables import feed_schema
from loomlog.services.projector import family_tail
from loomlog.services.projector.memory_feed import HOUR_MS, build_memory_feed
from loomlog.services.projector.settings import ProjectorSettings
from tests.projections.counters import raised
from tests.projections.memory_feed.memory_events import Memories, entry_deleted, entry_set
from tests.waiting import until

TOPIC = "loom.entity.events"


class Stage:
    """A log of one partition and the loop that writes its feed."""

    def __init__(self, options: PostgresOptions, connecting, prefix: str) -> None:
        self.schema = feed_schema(prefix)
        self.log = MemoryLog({TOPIC: 1})
        self.partition = Memories(clock_ms=time.time_ns() // 1_000_000)
        self.partition.claim()
        self.stop = asyncio.Event()
        self.connections: list = []
        settings = ProjectorSettings(
            kafka=KafkaOptions(bootstrap="nowhere:1"), postgres=options, owner="tests", prefix=prefix
        )

        async def connect():
            self.connections.append(await connecting())
            return self.connections[-1]

        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        async def count_partitions():
            return 1

        self.feed = build_memory_feed(
            settings,
            connect=connect,
            open_tail=open_tail,
            count_partitions=count_partitions,
            poll_timeout_s=0.02,
            max_records=4,
        )

    def publish(self) -> None:
        self.log.put(TOPIC, 0, self.partition.outgoing(len(self.log.records[TOPIC, 0])))

    async def rows(self, connection) -> list[tuple[int, str, str]]:
        result = await connection.execute(f"SELECT seq, type, key FROM {self.schema}.changes ORDER BY seq")
        return await result.fetchall()


@pytest.fixture
async def stage(options, connecting, prefix, monkeypatch):
    monkeypatch.setattr(family_tail, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(family_tail, "MAINTAIN_EVERY_S", 0.05)
    stage = Stage(options, connecting, prefix)
    yield stage
    stage.stop.set()


async def test_changes_of_memory_become_rows_and_other_events_none(stage, connection):
    stage.partition.change("ada", entry_set("ada", "a"))
    stage.partition.add("counter:acme/c", raised(1), tenant="acme")
    stage.partition.change("ada", entry_deleted("ada", "a"))
    stage.publish()
    task = asyncio.create_task(stage.feed.run(stage.stop))
    await until(lambda: stage.feed.metrics["events"] == 2)
    assert await stage.rows(connection) == [(1, "memory.set", "a"), (2, "memory.delete", "a")]
    stage.stop.set()
    await task


async def test_a_killed_writer_leaves_each_change_once_and_in_order(stage, connection):
    stage.partition.change("ada", *(entry_set("ada", f"k{n:02}") for n in range(40)))
    stage.publish()
    task = asyncio.create_task(stage.feed.run(stage.stop))
    for bound in (8, 16, 24):
        await until(lambda bound=bound: stage.feed.metrics["events"] >= bound)
        for one in stage.connections:
            await connection.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
        stage.connections.clear()
    await until(lambda: _has_rows(stage, connection, 40))
    assert [key for _, _, key in await stage.rows(connection)] == [f"k{n:02}" for n in range(40)]
    assert not task.done()


async def _has_rows(stage: Stage, connection, count: int) -> bool:
    return len(await stage.rows(connection)) == count


async def test_records_that_are_read_again_add_no_row(stage, connection):
    stage.partition.change("ada", entry_set("ada", "a"), entry_set("ada", "b"))
    stage.publish()
    task = asyncio.create_task(stage.feed.run(stage.stop))
    await until(lambda: stage.feed.metrics["events"] == 2)
    await connection.execute(f"UPDATE {stage.schema}.cursors SET next_offset = 0, term = -1, epoch = epoch + 1")
    stage.partition.change("ada", entry_set("ada", "c"))
    stage.publish()
    await until(lambda: stage.feed.metrics["events"] == 5)
    assert [key for _, _, key in await stage.rows(connection)] == ["a", "b", "c"]
    assert not task.done()


async def test_rows_are_kept_for_the_retention(stage, connection):
    now_ms = stage.partition.clock_ms
    stage.partition.clock_ms = now_ms - 25 * HOUR_MS
    stage.partition.change("ada", entry_set("ada", "old"))
    stage.partition.clock_ms = now_ms
    stage.partition.change("ada", entry_set("ada", "new"), entry_set("ada", "newer"))
    stage.publish()
    task = asyncio.create_task(stage.feed.run(stage.stop))
    await until(lambda: stage.feed.metrics["events"] == 3)
    assert [key for _, _, key in await stage.rows(connection)] == ["new", "newer"]
    await connection.execute(f"UPDATE {stage.schema}.changes SET at_ms = at_ms - %s WHERE key = 'new'", (25 * HOUR_MS,))
    await until(lambda: _has_rows(stage, connection, 1))
    result = await connection.execute(f"SELECT floor_seq, last_seq FROM {stage.schema}.state")
    assert await result.fetchall() == [(2, 3)]
    assert not task.done()
