"""Streams of the changes of memory: where something changed, never what it is now.

    feed      at once: whether the feed is on, the seq from which it goes on, the state of the embedder
    change    a key was set or deleted, or a scope was deleted

One reader a process follows the feed while there are streams, and nothing reads it otherwise. It keeps the newest
changes for all of them; a stream that is further behind, because it begins in the past or its client is slow, reads
pages of its own. So a stream holds a number and no queue.

`gap` in the first frame says that changes behind `since` are not kept any more: what the client knows of memory may
be out of date. So may it be after a `since` that this feed has never reached, which is then read from its beginning.

Before: api.py declares the endpoints. After: services/families/ports/change_feed.py.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from loomlog.projections.memory_feed.reads import PAGE_MAX, change_json
from loomlog.projections.memory_feed.tables import DOCUMENT_TYPES, MEMORY_TYPES, ChangeRow
from loomlog.projections.tables import EVERY_TENANT, Scope
from loomlog.services.core.access.decide import Caller, resolve_tenant
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.api import WATCH_DOCUMENTS, WATCH_MEMORY
from loomlog.services.families.ports.change_feed import ChangeFeed
from loomlog.services.families.ports.requests import EndpointHandler, EndpointRequest, SentEvent

POLL_S = 0.2
"""How often the feed is read while there are streams."""
RETRY_S = 1.0
"""Pause after a failed read."""
RECENT_MAX = 2_000
"""Newest changes kept for all streams; a stream that is further behind reads its own."""
ALL_TYPES = MEMORY_TYPES | DOCUMENT_TYPES
SEQ_DIGITS_MAX = 18
"""Digits of a seq: a larger number is none."""


class RecentChange(NamedTuple):
    """A change with its frame, which all streams share."""

    row: ChangeRow
    event: SentEvent


class MemoryChanges:
    """Opens streams of changes. `run` must be running as a task of its own.

    `feed` None: the feed is off. `embedder`: state of the embedder for the first frame, see connectors/embedders.
    """

    def __init__(self, feed: ChangeFeed | None, embedder: Callable[[], Mapping[str, Any]]) -> None:
        self.feed = feed
        self._embedder = embedder
        self._streams: set[ChangeStream] = set()
        self._is_watched = asyncio.Event()
        self._recent: deque[RecentChange] = deque()
        self._recent_after = self._newest = -1
        """Every change with a seq above the first, up to the second, is in `_recent`; -1: nothing was read yet."""

    def by_endpoint(self) -> Mapping[Endpoint, EndpointHandler]:
        """Return the handlers of the endpoints."""

        def following(types: Collection[str]) -> EndpointHandler:
            async def follow(request: EndpointRequest) -> ChangeStream:
                return await self.follow(request.caller, types, since=_since(request), tenant=request.text("tenant"))

            return follow

        return {WATCH_MEMORY: following(MEMORY_TYPES), WATCH_DOCUMENTS: following(DOCUMENT_TYPES)}

    async def follow(
        self, caller: Caller, types: Collection[str], *, since: int = 0, tenant: str = ""
    ) -> "ChangeStream":
        """Open a stream of the changes of these types behind a seq, of the caller's tenant; administrators see all, or
        the tenant they name. Raises Refused: insufficient_scope, projection_unavailable.
        """
        scope: Scope = EVERY_TENANT if caller.is_admin and not tenant else resolve_tenant(caller, tenant)
        opening: dict[str, Any] = {"enabled": self.feed is not None, "since": since, "embedder": self._embedder()}
        if self.feed is not None:
            bounds = await self.feed.bounds()
            if since < bounds.floor_seq or since > bounds.last_seq:
                opening["gap"] = True
            if since > bounds.last_seq:
                opening["since"] = since = 0
        stream = ChangeStream(self, scope, frozenset(types), since, orjson.dumps(opening))
        self._streams.add(stream)
        self._is_watched.set()
        return stream

    def remove(self, stream: "ChangeStream") -> None:
        """Forget a stream that has ended."""
        self._streams.discard(stream)
        if not self._streams:
            self._is_watched.clear()

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
            self._recent.extend(RecentChange(row, _event(row)) for row in rows)
            self._newest = rows[-1].seq
            while len(self._recent) > RECENT_MAX:
                self._recent_after = self._recent.popleft().row.seq
            self._wake()
        return len(rows) == PAGE_MAX

    def _wake(self) -> None:
        for stream in self._streams:
            stream.wake()

    async def after(self, seq: int, tenant: Scope, types: Collection[str]) -> tuple[list[SentEvent], int]:
        """Return the frames of known changes behind a seq, and the seq up to which they are complete.

        Raises Refused(projection_unavailable).
        """
        assert self.feed is not None, "a feed that is off has no changes"
        newest = self._newest
        if 0 <= self._recent_after <= seq:
            known: list[SentEvent] = []
            for row, event in reversed(self._recent):
                if row.seq <= seq:
                    break
                if row.type in types and tenant in (EVERY_TENANT, row.tenant):
                    known.append(event)
            return known[::-1], max(seq, newest)
        rows = await self.feed.changes(tenant, types, after=seq)
        if len(rows) == PAGE_MAX:
            return [_event(row) for row in rows], rows[-1].seq
        return [_event(row) for row in rows], max(seq, newest, *(row.seq for row in rows))


class ChangeStream:
    """One client's view; protocol EventSource of ports/requests.py."""

    def __init__(
        self, changes: MemoryChanges, tenant: Scope, types: frozenset[str], since: int, opening: bytes
    ) -> None:
        self._changes = changes
        self._has_ended = False
        self._tenant, self._types = tenant, types
        self._seq = since
        self._opening = opening
        self._has_news = asyncio.Event()
        self._has_news.set()

    async def next(self, wait_s: float) -> Sequence[SentEvent] | None:
        if self._opening:
            opening, self._opening = self._opening, b""
            return [SentEvent("feed", opening, "")]
        ends_at = asyncio.get_running_loop().time() + wait_s
        while not self._has_ended:
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._has_news.wait()
            except TimeoutError:
                return []
            self._has_news.clear()
            if self._changes.feed is None or self._has_ended:
                continue
            before = self._seq
            events, self._seq = await self._changes.after(before, self._tenant, self._types)
            if self._seq > before:
                # There may be more behind a page.
                self._has_news.set()
            if events:
                return events
        return None

    def wake(self) -> None:
        """Let a waiting `next` look for changes."""
        self._has_news.set()

    def close(self) -> None:
        self._has_ended = True
        self._changes.remove(self)
        self.wake()


def _since(request: EndpointRequest) -> int:
    """Return the seq after which the feed resumes: Last-Event-ID (sent on reconnect), else since; 0 if not a number."""
    try:
        since = request.text("since")
    except Refused:
        since = ""  # no text of a query
    for value in (request.headers.get("last-event-id", ""), since):
        if value.isascii() and value.isdecimal() and len(value) <= SEQ_DIGITS_MAX:
            return int(value)
    return 0


def _event(row: ChangeRow) -> SentEvent:
    return SentEvent("change", orjson.dumps(change_json(row)), str(row.seq))
