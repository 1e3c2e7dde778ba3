"""The tail of a family against Postgres, with the log in memory: each event once, by one process at a time."""

import asyncio

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.process import sessions
from loomlog.connectors.storage.postgres import create_tables
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.entity_events import AggregateEventImported
from loomlog.schemas.generated.hook_events import HookRemoved
from loomlog.services.projector import family_tail
from loomlog.services.projector.family_tail import FamilyTail, commit_channel, cursors_table
from tests.projections.counters import TOPIC, Counters, counter, reset
from tests.waiting import until

metadata = MetaData()
steps = Table(
    "steps",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=True),
    Column("aggregate", Text),
    Column("value", BigInteger),
)
cursors_table(metadata)


class Stage:
    """A log with two partitions, and tails of it that write one row an event."""

    def __init__(self, connecting, prefix: str) -> None:
        self.connecting, self.schema = connecting, f"{prefix}_steps"
        self.log = MemoryLog({TOPIC: 2})
        self.partitions = (Counters(), Counters())
        self.connections: list = []
        self.stop = asyncio.Event()
        self.topic_partitions = 2
        self.maintained = 0
        for partition in self.partitions:
            partition.claim()

    def publish(self) -> None:
        for number, partition in enumerate(self.partitions):
            self.log.put(TOPIC, number, partition.outgoing(len(self.log.records[TOPIC, number])))

    def tail(self, **options) -> FamilyTail:
        async def connect():
            self.connections.append(await self.connecting())
            return self.connections[-1]

        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        async def count_partitions():
            return self.topic_partitions

        async def prepare(connection):
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            await create_tables(connection, metadata, self.schema)

        async def handle(events):
            insert = f"INSERT INTO {self.schema}.steps (aggregate, value) VALUES (%s, %s)".encode()
            return [(insert, (one.envelope.aggregate, one.event.value)) for one in events]

        async def maintain(connection):
            self.maintained += 1

        return FamilyTail(
            self.schema,
            TOPIC,
            [CounterIncremented],
            **{
                "owner": "tests",
                "connect": connect,
                "open_tail": open_tail,
                "count_partitions": count_partitions,
                "prepare": prepare,
                "handle": handle,
                "maintain": maintain,
                "poll_timeout_s": 0.02,
            }
            | options,
        )

    def start(self, tail: FamilyTail) -> asyncio.Task[None]:
        return asyncio.create_task(tail.run(self.stop))

    async def rows(self, connection) -> list[tuple[str, int]]:
        result = await connection.execute(f"SELECT aggregate, value FROM {self.schema}.steps ORDER BY seq")
        return await result.fetchall()

    async def cursors(self, connection) -> dict[int, int]:
        result = await connection.execute(f"SELECT partition, next_offset FROM {self.schema}.cursors")
        return dict(await result.fetchall())

    async def kill_connections(self, connection) -> None:
        for one in self.connections:
            await connection.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
        self.connections.clear()


@pytest.fixture
async def stage(connecting, prefix, monkeypatch):
    monkeypatch.setattr(family_tail, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(family_tail, "IDLE_COMMIT_S", 0.05)
    stage = Stage(connecting, prefix)
    yield stage
    stage.stop.set()


async def test_events_of_the_family_become_rows_and_all_others_only_move_the_cursor(stage, connection, caplog):
    first, second = stage.partitions
    first.raise_("a", 1, 2)
    first.add(counter("a"), reset(0), tenant="acme")
    first.add("hook:acme/h", HookRemoved(hook_id="h_1"), tenant="acme")
    first.records.append(b"garbage")
    first.add(counter("a"), CounterIncremented(by=1, value=99), tenant="acme", term=7)
    second.raise_("b", 5)
    second.records[-1] = second.records[-1][:-1]
    second.raise_("b", 6)
    stage.publish()
    tail = stage.tail()
    task = stage.start(tail)
    await until(lambda: tail.metrics["events"] == 3)
    assert await stage.rows(connection) == [(counter("a"), 1), (counter("a"), 2), (counter("b"), 6)]
    assert await stage.cursors(connection) == {0: 7, 1: 3}
    assert tail.metrics["problems"] == 1, "the record that is cut short; the stale one and other kinds are none"
    assert "partition 1 offset 1 is left out" in caplog.text
    stage.stop.set()
    await task
    assert (tail.metrics["state"], stage.maintained) == ("stopped", 1)


async def test_an_imported_event_counts_and_one_in_a_foreign_aggregate_does_not(stage, connection):
    origin = Counters()
    origin.claim()
    origin.raise_("a", 1)
    origin.add(counter("a"), reset(0), tenant="acme")
    origin.add("hook:acme/h", CounterIncremented(by=1, value=3), tenant="acme")
    for record, remaining in zip(origin.records[1:3], (1, 0), strict=True):
        imported = AggregateEventImported(event=record, remaining=remaining)
        stage.partitions[0].add(counter("a"), imported, tenant="acme")
    stage.partitions[0].add("hook:acme/h", AggregateEventImported(event=origin.records[3], remaining=0), tenant="acme")
    stage.partitions[0].add("hook:acme/h", CounterIncremented(by=1, value=4), tenant="acme")
    stage.partitions[0].add(counter("b"), AggregateEventImported(event=b"torn", remaining=0), tenant="acme")
    stage.publish()
    tail = stage.tail()
    task = stage.start(tail)
    await until(lambda: tail.metrics["events"] == 1)
    assert await stage.rows(connection) == [(counter("a"), 1)]
    assert tail.metrics["problems"] == 1
    assert not task.done()


async def test_cursors_follow_when_only_others_write(stage, connection):
    stage.publish()
    tail = stage.tail()
    task = stage.start(tail)
    await until(lambda: tail.metrics["commits"] == 1)
    stage.partitions[0].add(counter("a"), reset(0), tenant="acme")
    stage.publish()
    await until(lambda: tail.metrics["commits"] == 2)
    assert await stage.cursors(connection) == {0: 2, 1: 1}
    assert not task.done()


async def test_a_killed_writer_repeats_nothing_and_loses_nothing(stage, connection):
    tail = stage.tail(max_records=3)
    task = stage.start(tail)
    for first in (1, 14, 27):
        stage.partitions[0].raise_("a", *range(first, first + 13))
        stage.publish()
        await until(lambda first=first: tail.metrics["events"] >= first + 5)
        await stage.kill_connections(connection)
    stage.partitions[1].raise_("b", 1)
    stage.publish()
    await until(lambda: tail.metrics["sessions"] >= 4 and tail.metrics["state"] == "following")
    await until(lambda: _count(stage, connection, 40))
    rows = await stage.rows(connection)
    assert sorted(rows) == sorted([(counter("a"), value) for value in range(1, 40)] + [(counter("b"), 1)])
    assert not task.done()


async def _count(stage: Stage, connection, expected: int) -> bool:
    return len(await stage.rows(connection)) == expected


async def test_one_process_writes_and_the_next_takes_over_when_its_connection_ends(stage, connection):
    stage.partitions[0].raise_("a", 1)
    stage.publish()
    first, second = stage.tail(), stage.tail(owner="second")
    task = stage.start(first)
    await until(lambda: first.metrics["events"] == 1)
    other = stage.start(second)
    await until(lambda: second.metrics["state"] == "standing by")
    stage.partitions[0].raise_("a", 2)
    stage.publish()
    await until(lambda: first.metrics["events"] == 2)
    assert second.metrics["events"] == 0
    task.cancel()
    await asyncio.wait({task})
    stage.partitions[0].raise_("a", 3)
    stage.publish()
    await until(lambda: second.metrics["events"] == 1)
    assert [value for _, value in await stage.rows(connection)] == [1, 2, 3]
    assert not other.done()


async def test_an_error_of_the_handler_ends_the_process_and_nothing_is_written(stage, connection):
    async def fail(events):
        return [(f"INSERT INTO {stage.schema}.steps (value) VALUES (1)".encode(), ()), (b"SELECT 1 / 0", ())]

    stage.partitions[0].raise_("a", 1)
    stage.publish()
    with pytest.raises(Permanent, match="division by zero"):
        async with asyncio.timeout(30):
            await stage.tail(handle=fail).run(stage.stop)
    assert await stage.rows(connection) == []
    assert await stage.cursors(connection) == {0: 0, 1: 0}


async def test_a_missing_topic_and_a_lost_broker_are_waited_for(stage, caplog):
    stage.topic_partitions = 0
    stage.partitions[0].raise_("a", 1)
    stage.publish()
    opened = []

    async def open_tail(starts):
        opened.append(starts)
        if len(opened) == 1:
            raise Transient("the broker is away", kind="unavailable")
        return stage.log.tail(TOPIC, starts)

    tail = stage.tail(open_tail=open_tail)
    task = stage.start(tail)
    await until(lambda: tail.metrics["state"] == "waiting")
    assert "does not exist yet; retrying" in caplog.text
    stage.topic_partitions = 2
    await until(lambda: tail.metrics["events"] == 1)
    assert "the broker is away; retrying" in caplog.text
    assert not task.done()


async def test_a_commit_notifies_its_channel(stage, connecting):
    async with await connecting() as listener:
        await listener.execute(f"LISTEN {commit_channel(stage.schema)}")
        stage.partitions[0].raise_("a", 1)
        stage.publish()
        task = stage.start(stage.tail())
        received = [one.payload async for one in listener.notifies(timeout=10, stop_after=1)]
    assert received == [""]
    assert not task.done()
