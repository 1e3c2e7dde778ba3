"""The feed of changes of memory in Postgres: which rows an event makes, their numbers, and where the feed begins."""

import asyncio

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.memory_feed import tables
from loomlog.projections.memory_feed.changes import changes_of, delete_changes, statements_of
from loomlog.projections.memory_feed.reads import read_bounds, read_changes
from loomlog.projections.memory_feed.tables import MEMORY_TYPES, feed_schema, prepare_feed
from loomlog.projections.tables import EVERY_TENANT
from tests.projections.memory_feed.memory_events import (
    Memories,
    entries_expired,
    entry_deleted,
    entry_set,
    entry_superseded,
    scope_dropped,
)

TOPIC = "loom.entity.events"


def items_of(partition: Memories, number: int = 0) -> list[PositionedEvent]:
    """The events of a partition; its first record is the claim."""
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, number, partition.outgoing())
    items = []
    for record in log.records[TOPIC, number][1:]:
        decoded = partition.codec.decode(record.value)
        items.append(PositionedEvent(number, record.offset, decoded.envelope, decoded.record, record.value))
    return items


def written(user: str, *keys: str, tenant: str = "acme", number: int = 0) -> list[PositionedEvent]:
    """Events that set keys."""
    partition = Memories()
    partition.claim()
    partition.change(user, *(entry_set(user, key) for key in keys), tenant=tenant)
    return items_of(partition, number)


async def write_changes(connection, schema: str, items: list[PositionedEvent], *, kept_from_ms: int) -> None:
    """What the tail of the feed does with events."""
    for statement, parameters in statements_of(schema, items, kept_from_ms=kept_from_ms):
        await connection.execute(statement, parameters)


@pytest.fixture
async def schema(connection, prefix) -> str:
    await prepare_feed(connection, feed_schema(prefix))
    return feed_schema(prefix)


@pytest.fixture
async def feed(options, schema):
    reader = await open_reader(options, schema="public", max_connections=1)
    yield reader
    await reader.close()


async def keys(feed, schema, tenant=EVERY_TENANT, types=MEMORY_TYPES, after=0, limit=500) -> list[tuple[int, str]]:
    rows = await read_changes(feed, schema, tenant, types, after=after, limit=limit)
    return [(row.seq, row.key) for row in rows]


def test_each_event_makes_a_row_for_each_key_and_none_holds_a_value():
    partition = Memories()
    partition.claim()
    partition.change("ada", entry_set("ada", "a"), entry_deleted("ada", "b"), entry_superseded("ada", "c"))
    partition.change("ada", entries_expired("ada", "d", "e"))
    partition.change("ada", scope_dropped("ada", more=True), scope_dropped("ada", more=False))
    rows = [row for item in items_of(partition) for row in changes_of(item)]
    assert [(row.offset, row.part, row.type, row.key) for row in rows] == [
        (1, 0, "memory.set", "a"),
        (2, 0, "memory.delete", "b"),
        (3, 0, "memory.delete", "c"),
        (4, 0, "memory.delete", "d"),
        (4, 1, "memory.delete", "e"),
        (6, 0, "memory.scope_deleted", ""),
    ]
    assert {(row.tenant, row.scope, row.scope_id) for row in rows} == {("acme", "user", "ada")}
    assert "value of the key" not in str(rows)


def test_a_name_that_no_row_can_hold_is_left_out():
    assert [row.key for item in written("ada", "a\x00b", "ok") for row in changes_of(item)] == ["ok"]


async def test_numbers_go_on_and_a_repeated_event_has_no_second_row(connection, schema, feed):
    await write_changes(connection, schema, written("ada", "a", "b"), kept_from_ms=0)
    await write_changes(connection, schema, written("ada", "a", "b", "c"), kept_from_ms=0)
    await write_changes(connection, schema, written("bob", "d", number=1), kept_from_ms=0)
    assert await keys(feed, schema) == [(1, "a"), (2, "b"), (5, "c"), (6, "d")]
    assert await read_bounds(feed, schema) == (0, 6)


async def test_a_reader_sees_its_tenant_and_its_types_page_by_page(connection, schema, feed):
    await write_changes(connection, schema, written("ada", "a", "b", "c"), kept_from_ms=0)
    await write_changes(connection, schema, written("gil", "x", tenant="globex", number=1), kept_from_ms=0)
    assert await keys(feed, schema, "acme", after=1, limit=1) == [(2, "b")]
    assert await keys(feed, schema, "globex") == [(4, "x")]
    assert await keys(feed, schema, types=("memory.delete",)) == []
    assert await keys(feed, schema, types=()) == []


async def test_two_writers_become_visible_in_the_order_of_their_numbers(connection, connecting, schema, feed):
    async with await connecting() as other:

        async def write_second():
            async with other.transaction():
                await write_changes(other, schema, written("bob", "b", number=1), kept_from_ms=0)

        async with connection.transaction():
            await write_changes(connection, schema, written("ada", "a"), kept_from_ms=0)
            second = asyncio.create_task(write_second())
            done, _ = await asyncio.wait({second}, timeout=0.2)
            assert not done, "it waits for the first, which may still fail"
            assert await keys(feed, schema) == []
        await second
    assert await keys(feed, schema) == [(1, "a"), (2, "b")]


async def test_what_is_deleted_or_too_old_raises_the_floor(connection, schema, feed):
    items = written("ada", "a", "b", "c")
    times = [item.envelope.at_ms for item in items]
    await write_changes(connection, schema, items, kept_from_ms=0)
    assert await delete_changes(connection, schema, before_ms=times[0]) == 0
    assert await read_bounds(feed, schema) == (0, 3)
    assert await delete_changes(connection, schema, before_ms=times[2]) == 2
    assert await read_bounds(feed, schema) == (2, 3)
    await write_changes(connection, schema, written("bob", "d", number=1), kept_from_ms=times[2] + 1)
    assert await read_bounds(feed, schema) == (4, 4), "a change without a row is one that readers miss"
    assert await keys(feed, schema) == [(3, "c")]


async def test_another_version_of_the_tables_goes_on_with_the_numbers(connection, schema, feed, monkeypatch):
    await write_changes(connection, schema, written("ada", "a", "b"), kept_from_ms=0)
    await connection.execute(f"INSERT INTO {schema}.push_cursors (subscription, seq) VALUES ('s', 2)")
    monkeypatch.setattr(tables, "VERSION", 2)
    await prepare_feed(connection, schema)
    assert await keys(feed, schema) == []
    await write_changes(connection, schema, written("ada", "a", "b"), kept_from_ms=0)
    assert await keys(feed, schema) == [(3, "a"), (4, "b")]
    assert await read_bounds(feed, schema) == (2, 4)
    result = await connection.execute(f"SELECT seq FROM {schema}.push_cursors")
    assert await result.fetchall() == [(2,)]
    monkeypatch.setattr(tables, "VERSION", 1)
    with pytest.raises(Transient, match="is of version 2, this process writes version 1"):
        await prepare_feed(connection, schema)
