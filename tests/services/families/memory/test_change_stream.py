"""Streams of changes of memory: who sees what, where they resume, and what reading the feed costs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from loomlog.connectors.storage.postgres import PostgresOptions, connect, open_reader
from loomlog.projections.memory_feed.reads import PAGE_MAX
from loomlog.projections.memory_feed.tables import DOCUMENT_TYPES, MEMORY_TYPES, feed_schema, prepare_feed
from loomlog.projections.tables import EVERY_TENANT
from loomlog.services.application.queries.change_feed import SqlChangeFeed
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import change_stream
from loomlog.services.families.memory.change_stream import ChangeStream, MemoryChanges
from tests.projections.conftest import options, prefix
from tests.projections.memory_feed.test_memory_feed import write_changes, written
from tests.services.application.change_feed import MemoryChangeFeed
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX
from tests.waiting import until

__all__ = ["options", "prefix"]
NO_EMBEDDER: Mapping[str, Any] = {"state": "absent"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "POLL_S", 0.005)
    monkeypatch.setattr(change_stream, "RETRY_S", 0.01)


@contextlib.asynccontextmanager
async def following(
    feed: MemoryChangeFeed | None, embedder: Mapping[str, Any] = NO_EMBEDDER
) -> AsyncIterator[MemoryChanges]:
    changes = MemoryChanges(feed, lambda: embedder)
    task = asyncio.create_task(changes.run())
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.wait({task})


async def opened(changes: MemoryChanges, caller: Caller = ACME, **options: Any) -> tuple[ChangeStream, dict[str, Any]]:
    """A stream and its first frame."""
    stream = await changes.follow(caller, options.pop("types", MEMORY_TYPES), **options)
    (event,) = await stream.next(WAIT_S) or []
    assert (event.type, event.id) == ("feed", "")
    return stream, orjson.loads(event.data)


async def received(stream: ChangeStream, count: int) -> list[dict[str, Any]]:
    """The next changes."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT_S):
        while len(frames) < count:
            events = await stream.next(WAIT_S)
            assert events is not None, "it has ended"
            for event in events:
                frames.append(orjson.loads(event.data))
                assert (event.type, event.id) == ("change", str(frames[-1]["seq"]))
    return frames


async def test_it_begins_with_what_is_kept_and_goes_on_with_what_comes() -> None:
    feed = MemoryChangeFeed()
    feed.add("a")
    async with following(feed) as changes:
        stream, opening = await opened(changes)
        assert opening == {"enabled": True, "since": 0, "embedder": {"state": "absent"}}
        assert await received(stream, 1) == [
            {
                "seq": 1,
                "tenant": "acme",
                "type": "memory.set",
                "scope": "user",
                "scope_id": "ada",
                "key": "a",
                "at": "2026-05-28T20:26:40.000Z",
            }
        ]
        feed.add("", kind="memory.scope_deleted")
        (dropped,) = await received(stream, 1)
        assert (dropped["seq"], dropped["type"], "key" in dropped) == (2, "memory.scope_deleted", False)


async def test_it_resumes_after_a_seq_and_knows_whether_something_is_missing() -> None:
    feed = MemoryChangeFeed()
    for key in "abcd":
        feed.add(key)
    async with following(feed) as changes:
        stream, opening = await opened(changes, since=3)
        assert opening["since"] == 3
        assert "gap" not in opening
        assert [one["key"] for one in await received(stream, 1)] == ["d"]
        feed.forget(2)
        assert "gap" not in (await opened(changes, since=2))[1]
        stream, opening = await opened(changes, since=1)
        assert (opening["since"], opening["gap"]) == (1, True)
        assert [one["key"] for one in await received(stream, 2)] == ["c", "d"]
        stream, opening = await opened(changes, since=99)
        assert (opening["since"], opening["gap"]) == (0, True), "it is not a seq of this feed"
        assert [one["key"] for one in await received(stream, 2)] == ["c", "d"]


@pytest.mark.parametrize(
    ("caller", "tenant", "keys"),
    [
        (ACME, "", ["acme"]),
        (ACME, "acme", ["acme"]),
        (GLOBEX, "", ["globex"]),
        (ADMIN_CALLER, "", ["acme", "globex"]),
        (ADMIN_CALLER, "globex", ["globex"]),
    ],
)
async def test_a_tenant_sees_itself_and_an_administrator_all(caller: Caller, tenant: str, keys: list[str]) -> None:
    feed = MemoryChangeFeed()
    async with following(feed) as changes:
        stream, _ = await opened(changes, caller, tenant=tenant)
        await until(lambda: changes._newest == 0)
        for name in ("acme", "globex"):
            feed.add(name, tenant=name)
        assert [one["key"] for one in await received(stream, len(keys))] == keys
        again, _ = await opened(changes, caller, tenant=tenant)
        assert [one["key"] for one in await received(again, len(keys))] == keys, "also from the past"


async def test_another_tenant_is_refused() -> None:
    async with following(MemoryChangeFeed()) as changes:
        with pytest.raises(Refused) as refusal:
            await changes.follow(ACME, MEMORY_TYPES, tenant="globex")
        assert refusal.value.code == "insufficient_scope"


async def test_each_feed_shows_its_types_and_they_share_the_numbers() -> None:
    feed = MemoryChangeFeed()
    async with following(feed) as changes:
        memory, _ = await opened(changes)
        documents, _ = await opened(changes, types=DOCUMENT_TYPES)
        feed.add("a")
        feed.add("chunk", kind="document.chunk.updated")
        feed.add("b", kind="memory.delete")
        assert [one["seq"] for one in await received(memory, 2)] == [1, 3]
        assert [one["seq"] for one in await received(documents, 1)] == [2]


async def test_many_changes_come_page_by_page_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "RECENT_MAX", 50)
    feed = MemoryChangeFeed()
    for number in range(PAGE_MAX + 40):
        feed.add(f"k{number}", tenant="acme" if number % 2 else "globex")
    async with following(feed) as changes:
        stream, _ = await opened(changes, ADMIN_CALLER)
        seqs = [one["seq"] for one in await received(stream, PAGE_MAX + 40)]
        await until(lambda: changes._newest == PAGE_MAX + 40)
        for number in range(3 * PAGE_MAX):
            feed.add(f"more{number}", tenant="acme" if number % 2 else "globex")
        seqs += [one["seq"] for one in await received(stream, 3 * PAGE_MAX)]
        assert seqs == list(range(1, 4 * PAGE_MAX + 41))
        await until(lambda: changes._newest == seqs[-1])
        assert len(changes._recent) == 50
        slow, _ = await opened(changes, since=PAGE_MAX)
        expected = range(PAGE_MAX + 2, seqs[-1] + 1, 2)
        assert [one["seq"] for one in await received(slow, len(expected))] == list(expected)


async def test_nothing_is_read_while_nobody_watches() -> None:
    feed = MemoryChangeFeed()
    async with following(feed) as changes:
        await asyncio.sleep(0.03)
        assert feed.reads == 0
        stream, _ = await opened(changes)
        feed.add("a")
        await received(stream, 1)
        stream.close()
        await asyncio.sleep(0.02)
        reads = feed.reads
        await asyncio.sleep(0.03)
        assert feed.reads == reads
        feed.add("b")
        stream, _ = await opened(changes, since=1)
        assert [one["key"] for one in await received(stream, 1)] == ["b"]
        feed.add("c")
        assert [one["key"] for one in await received(stream, 1)] == ["c"]


async def test_a_database_that_is_away_refuses_new_streams_and_open_ones_wait() -> None:
    feed = MemoryChangeFeed()
    async with following(feed) as changes:
        stream, _ = await opened(changes)
        await until(lambda: changes._newest == 0)
        feed.away = True
        with pytest.raises(Refused, match="cannot be reached"):
            await changes.follow(ACME, MEMORY_TYPES)
        assert await stream.next(0.05) == []
        feed.add("a")
        feed.away = False
        assert [one["key"] for one in await received(stream, 1)] == ["a"]


async def test_a_feed_that_is_off_says_so_and_stays_open() -> None:
    async with following(None, {"state": "ok", "successes": 3}) as changes:
        stream, opening = await opened(changes, since=7)
        assert opening == {"enabled": False, "since": 7, "embedder": {"state": "ok", "successes": 3}}
        assert await stream.next(0.01) == []
        stream.close()
        assert await stream.next(WAIT_S) is None


async def test_a_closed_stream_ends_at_once() -> None:
    async with following(MemoryChangeFeed()) as changes:
        stream, _ = await opened(changes)
        waiting = asyncio.create_task(stream.next(WAIT_S))
        await until(lambda: not stream._has_news.is_set())
        stream.close()
        assert await waiting is None


async def test_the_feed_in_postgres_is_empty_before_a_projector_has_made_it(
    options: PostgresOptions, prefix: str
) -> None:
    reader = await open_reader(options, schema="public", max_connections=1)
    feed = SqlChangeFeed(reader, feed_schema(prefix))
    try:
        assert await feed.bounds() == (0, 0)
        assert await feed.changes(EVERY_TENANT, MEMORY_TYPES, after=0) == []
        async with await connect(options) as connection:
            await prepare_feed(connection, feed_schema(prefix))
            await write_changes(connection, feed_schema(prefix), written("ada", "a", "b"), kept_from_ms=0)
        assert await feed.bounds() == (0, 2)
        assert [row.key for row in await feed.changes("acme", MEMORY_TYPES, after=1)] == ["b"]
    finally:
        await reader.close()
    with pytest.raises(Refused) as refusal:
        await feed.bounds()
    assert refusal.value.code == "projection_unavailable"
