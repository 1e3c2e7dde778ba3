"""Streams of the changes of memory: where something changed, never what it is now.

    feed      at once: whether the feed is on, the seq from which it goes on, the state of the embedder
    change    a key was set or deleted, or a scope was deleted

One reader a process follows the feed while there are streams, and nothing reads it otherwise. It keeps the newest
changes for all of them; a stream that is further behind, because it begins in the past or its client is slow, reads
pages of its own. So a stream holds a number and no queue.

`gap` in the first frame says that changes behind `since` are not kept any more: what the client knows of memory may
be out of date. So may it be after a `since` that this feed has never reached, which is then read from its beginning.

Before: services/api/memory_feed_endpoints.py. After: projections/memory_feed/reads.py.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Collection
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.memory_feed.reads import PAGE_MAX, FeedBounds, change_json, read_bounds, read_changes
from loomlog.projections.memory_feed.tables import DOCUMENT_TYPES, MEMORY_TYPES, ChangeRow
from loomlog.projections.tables import EVERY_TENANT, Scope
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import unavailable
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, STOPPING
from loomlog.services.core.access.decide import Caller, access_filter
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.embedder_state import EmbedderState

POLL_S = 0.2
"""How often the feed is read while there are streams."""
RETRY_S = 1.0
"""Pause after a failed read."""
KEEPALIVE_S = 20.0
RECENT_MAX = 2_000
"""Newest changes kept for all streams; a stream that is further behind reads its own."""
ALL_TYPES = MEMORY_TYPES | DOCUMENT_TYPES

ResultT = TypeVar("ResultT")


class ChangeFeed(Protocol):
    """Reads of the feed. Both raise Refused(projection_unavailable)."""

    async def bounds(self) -> FeedBounds: ...
    async def changes(self, tenant: Scope, types: Collection[str], *, after: int) -> list[ChangeRow]:
        """Return the first changes behind a seq, at most PAGE_MAX."""
        ...


class SqlChangeFeed:
    """The feed in Postgres (protocol ChangeFeed); it is empty until a projector has made its tables."""

    def __init__(self, reader: PostgresReader, schema: str, *, wait_s: float = limits.PROJECTION_WAIT_S) -> None:
        self._reader, self._schema, self._wait_s = reader, schema, wait_s

    async def bounds(self) -> FeedBounds:
        return await self._bounded(read_bounds(self._reader, self._schema), FeedBounds(0, 0))

    async def changes(self, tenant: Scope, types: Collection[str], *, after: int) -> list[ChangeRow]:
        return await self._bounded(read_changes(self._reader, self._schema, tenant, types, after=after), [])

    async def _bounded(self, read: Awaitable[ResultT], absent: ResultT) -> ResultT:
        try:
            async with asyncio.timeout(self._wait_s):
                return await read
        except TimeoutError as error:
            late = Transient(f"read the feed of memory: no answer in {self._wait_s:g} s", kind="timeout")
            raise unavailable("projection", late) from error
        except ConnectorError as error:
            if isinstance(error, Permanent) and error.kind == "not_found":
                return absent
            raise unavailable("projection", error) from error


class RecentChange(NamedTuple):
    """A change with its frame, which all streams share."""

    row: ChangeRow
    chunk: StreamChunk


class MemoryChanges:
    """Opens streams of changes. `run` must be running as a task of its own.

    `feed` None: the feed is off. `embedder`: state of the embedder for the first frame, see connectors/embedders.
    """

    def __init__(
        self,
        feed: ChangeFeed | None,
        *,
        embedder: EmbedderState = lambda: {"state": "absent"},
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self.feed, self.keepalive_s = feed, keepalive_s
        self._embedder = embedder
        self._streams: set[ChangeStream] = set()
        self._is_watched = asyncio.Event()
        self._is_stopping = False
        self._recent: deque[RecentChange] = deque()
        self._recent_after = self._newest = -1
        """Every change with a seq above the first, up to the second, is in `_recent`; -1: nothing was read yet."""

    async def follow(
        self, caller: Caller, types: Collection[str], *, since: int = 0, tenant: str = ""
    ) -> "ChangeStream":
        """Open a stream of the changes of these types behind a seq, of the caller's tenant; administrators see all, or
        the tenant they name. Raises Refused: insufficient_scope, projection_unavailable.
        """
        require_scope(caller, TENANT)
        scope = scope_of(access_filter(caller))
        if tenant and tenant != scope:
            if scope is not EVERY_TENANT:
                text = f"the tenant {tenant[:80]} is not yours"
                raise Refused("insufficient_scope", text, details={"scope": ADMIN})
            scope = tenant
        opening: dict[str, Any] = {"enabled": self.feed is not None, "since": since, "embedder": self._embedder()}
        if self.feed is not None:
            bounds = await self.feed.bounds()
            if since < bounds.floor_seq or since > bounds.last_seq:
                opening["gap"] = True
            if since > bounds.last_seq:
                opening["since"] = since = 0
        stream = ChangeStream(self, scope, frozenset(types), since, orjson.dumps(opening))
        if self._is_stopping:
            stream.close(STOPPING)
        else:
            self._streams.add(stream)
            self._is_watched.set()
        return stream

    def remove(self, stream: "ChangeStream") -> None:
        """Forget a stream that has ended."""
        self._streams.discard(stream)
        if not self._streams:
            self._is_watched.clear()

    def stop(self) -> None:
        """End all streams: the process is shutting down and its clients reconnect to another."""
        self._is_stopping = True
        for stream in list(self._streams):
            stream.close(STOPPING)

    async def run(self) -> None:
        """Read the feed whenever there are streams, until cancelled."""
        if self.feed is None:
            return
        while True:
            await self._is_watched.wait()
            self._recent.clear()
            self._recent_after = self._newest = -1
            while self._streams:
                try:
                    is_behind = await self._read_newest(self.feed)
                except Refused:
                    await asyncio.sleep(RETRY_S)
                    continue
                if not is_behind:
                    await asyncio.sleep(POLL_S)

    async def _read_newest(self, feed: ChangeFeed) -> bool:
        """Read what is new and wake the streams; return whether there may be more."""
        if self._newest < 0:
            self._recent_after = self._newest = (await feed.bounds()).last_seq
            self._wake()
            return False
        rows = await feed.changes(EVERY_TENANT, ALL_TYPES, after=self._newest)
        if rows:
            self._recent.extend(RecentChange(row, change_chunk(row)) for row in rows)
            self._newest = rows[-1].seq
            while len(self._recent) > RECENT_MAX:
                self._recent_after = self._recent.popleft().row.seq
            self._wake()
        return len(rows) == PAGE_MAX

    def _wake(self) -> None:
        for stream in self._streams:
            stream.wake()

    async def after(self, seq: int, tenant: Scope, types: Collection[str]) -> tuple[list[StreamChunk], int]:
        """Return the frames of known changes behind a seq, and the seq up to which they are complete.

        Raises Refused(projection_unavailable).
        """
        assert self.feed is not None, "a feed that is off has no changes"
        newest = self._newest
        if 0 <= self._recent_after <= seq:
            known: list[StreamChunk] = []
            for row, chunk in reversed(self._recent):
                if row.seq <= seq:
                    break
                if row.type in types and tenant in (EVERY_TENANT, row.tenant):
                    known.append(chunk)
            return known[::-1], max(seq, newest)
        rows = await self.feed.changes(tenant, types, after=seq)
        if len(rows) == PAGE_MAX:
            return [change_chunk(row) for row in rows], rows[-1].seq
        return [change_chunk(row) for row in rows], max(seq, newest, *(row.seq for row in rows))


class ChangeStream:
    """One client's view; `next` and `close` as in run_stream.RunStream."""

    def __init__(
        self, changes: MemoryChanges, tenant: Scope, types: frozenset[str], since: int, opening: bytes
    ) -> None:
        self.end_reason = ""
        self._changes = changes
        self._tenant, self._types = tenant, types
        self._seq = since
        self._opening = opening
        self._has_news = asyncio.Event()
        self._has_news.set()

    async def next(self) -> list[StreamChunk] | None:
        """Return frames, [] for a keepalive, None at the end. Raises Refused when the feed cannot be read."""
        if self._opening:
            opening, self._opening = self._opening, b""
            return [StreamChunk(None, "feed", opening)]
        clock = asyncio.get_running_loop().time
        ends_at = clock() + self._changes.keepalive_s
        while not self.end_reason:
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._has_news.wait()
            except TimeoutError:
                return []
            self._has_news.clear()
            if self._changes.feed is None or self.end_reason:
                continue
            before = self._seq
            chunks, self._seq = await self._changes.after(before, self._tenant, self._types)
            if self._seq > before:
                # There may be more behind a page.
                self._has_news.set()
            if chunks:
                return chunks
        return None

    def wake(self) -> None:
        """Let a waiting `next` look for changes."""
        self._has_news.set()

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the stream; a waiting `next` returns."""
        self.end_reason = self.end_reason or reason
        self._changes.remove(self)
        self.wake()


def change_chunk(row: ChangeRow) -> StreamChunk:
    """Return the frame of a change; its id is the seq."""
    return StreamChunk(row.seq, "change", orjson.dumps(change_json(row)))
