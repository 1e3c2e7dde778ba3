"""What happens to runs, as events that a subscriber reads at its own pace: started, ended, waits, asks.

A cursor is a position in every partition of the log, with the term in force there. Events are kept for ever, so a
subscriber that was away gets all of them, each once, and a cursor of years ago is as good as one of now. Any process
reads from any cursor; no process remembers a subscriber.

    read      a page after a cursor, from the log
    follow    the same, then what the hub sees; a subscriber that falls behind reads from the log again

The end of a run does not say whose it is, so a run's row is read once, and its identity kept for a while. An event
whose run has no row yet ends the page: it comes with the next one.

Before: services/api/mcp/event_operations.py. After: event_hub.py, services/application/queries/log_window.py.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from loomlog.connectors.protocols import LogRanges
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.run_events import (
    Event,
    InterruptionClosed,
    InterruptionOpened,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunStarted,
)
from loomlog.schemas.reader import TermReader
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.log_pages import LogReadQueue
from loomlog.services.application.queries.log_window import LogWindow
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.streaming.subscription import SLOW_CONSUMER
from loomlog.services.core.access.decide import Caller, ResourceOwner, access_filter, can_see

STARTED, ENDED, WAITS, ASKED, ANSWERED = "run.started", "run.ended", "run.waiting", "question.asked", "question.closed"
EVENTS_OF: Mapping[str, tuple[type[Event], ...]] = {
    STARTED: (RunStarted,),
    ENDED: (RunCompleted, RunFailed, RunCancelled),
    WAITS: (RunParked, RunPaused, RunQuarantined),
    ASKED: (InterruptionOpened,),
    ANSWERED: (InterruptionClosed,),
}
"""Events of the log by the type of event that a subscriber names."""
CURSOR_CHARACTERS_MAX = 20_000
"""Characters of a cursor: a thousand partitions have fewer."""
KNOWN_RUNS_MAX = 20_000
"""Runs whose identity is kept; those of others are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEventFilter:
    """Which events a subscriber takes; empty fields do not narrow."""

    type: str
    run_id: str = ""
    session_id: str = ""
    agent: str = ""
    user_id: str = ""


class RunOccurrence(NamedTuple):
    """An event of a run, as subscribers get it."""

    id: str
    """Position of its record: the same in every process and for ever."""
    type: str
    at: str
    """RFC 3339."""
    data: Mapping[str, Any]
    cursor: str = ""
    """Behind it, and before what follows."""


class Place(NamedTuple):
    """Where reading goes on in a partition."""

    offset: int
    term: int


@dataclass(slots=True)
class FeedCursor:
    """Where reading goes on, in every partition."""

    places: dict[int, Place] = field(default_factory=dict)

    def encode(self) -> str:
        """Return the cursor as text."""
        rows = [(partition, *place) for partition, place in sorted(self.places.items())]
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(rows)).decode().rstrip("=")

    def behind(self, item: EventItem) -> "FeedCursor":
        """Return the cursor behind an event."""
        return FeedCursor({**self.places, item.partition: Place(item.raw.offset + 1, item.raw.term)})

    @classmethod
    def parse(cls, text: str) -> "FeedCursor":
        """Return the cursor of a text. Raises Refused(bad_request)."""
        try:
            if len(text) > CURSOR_CHARACTERS_MAX or not text.isascii():
                raise ValueError
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            rows = msgspec.msgpack.decode(raw, type=list[tuple[int, int, int]])
        except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
            raise foreign_cursor() from error
        if any(partition < 0 or offset < 0 or term < -1 for partition, offset, term in rows):
            raise foreign_cursor()
        return cls({partition: Place(offset, term) for partition, offset, term in rows})


def foreign_cursor() -> Exception:
    """Return the refusal of a cursor that was not given out here."""
    return bad_request("cursor is none that was given out here: pass that of the last answer, or null for now")


@dataclass(slots=True, kw_only=True)
class FeedPage:
    """Events after a cursor, in the order of each partition."""

    events: list[RunOccurrence]
    cursor: FeedCursor
    has_more: bool
    is_truncated: bool = False
    """Events after the cursor are left out because they are too old."""


class _Run(NamedTuple):
    """What does not change of a run."""

    tenant: str
    user_id: str
    agent: str
    agent_id: str
    session_id: str
    is_imported: bool


class RunFeed:
    """Reads events of runs. All methods raise Refused."""

    def __init__(
        self, sources: StreamSources, ranges: LogRanges, codec: Codec, reads: LogReadQueue, *, events_topic: str
    ) -> None:
        self._sources = sources
        self._codec = codec
        self._reads = reads
        self._window = LogWindow(ranges, codec, events_topic)
        self._types = {
            schema_id: name
            for name, records in EVENTS_OF.items()
            for schema_id in codec.schema_ids_of(frozenset(record.SCHEMA for record in records))
        }
        self._runs: dict[str, _Run] = {}

    def now(self) -> FeedCursor:
        """Return the cursor behind everything that this process has seen."""
        hub = self._sources.hub
        return FeedCursor({number: Place(hub.position(number), hub.term(number)) for number in hub.partitions})

    async def check(self, cursor: FeedCursor) -> None:
        """Raise Refused(bad_request) for a cursor of another installation, or beyond the end of the log."""
        hub = self._sources.hub
        if sorted(cursor.places) != sorted(hub.partitions):
            raise foreign_cursor()
        for partition, place in cursor.places.items():
            # Another process may have seen more than this one.
            is_ahead = place.offset > hub.position(partition)
            if is_ahead and place.offset > await self._window.end_offset(partition):
                raise foreign_cursor()

    async def read(
        self, caller: Caller, criteria: RunEventFilter, cursor: FeedCursor, *, limit: int, oldest_ms: int = 0
    ) -> FeedPage:
        """Return events after a cursor, each with its own, none older than `oldest_ms`."""
        page = FeedPage(events=[], cursor=FeedCursor(dict(cursor.places)), has_more=False)
        hub, scanned = self._sources.hub, 0
        ends = {number: hub.position(number) for number in hub.partitions}
        behind = [number for number in ends if page.cursor.places[number].offset < ends[number]]
        if not behind:
            return page
        await self._sources.barrier.wait_for_own_writes(None)
        async with self._reads.slot(caller):
            for number in behind:
                start, term = page.cursor.places[number]
                reader = TermReader(codec=self._codec, term=term, next_offset=start)
                async with aclosing(self._window.records(number, start, ends[number])) as records:
                    async for record in records:
                        if len(page.events) >= limit or scanned >= limits.EVENTS_SCANNED_MAX:
                            page.has_more = True
                            return page
                        scanned += 1
                        try:
                            raw = reader.read(record.offset, record.value)
                        except Undecodable:
                            raw = None  # the projector reports it
                        if raw is not None and raw.schema_id in self._types:
                            item = EventItem(raw, number, self._codec)
                            if not await self._add(page, caller, criteria, item, oldest_ms):
                                page.has_more = True
                                return page
                        page.cursor.places[number] = Place(record.offset + 1, reader.term)
                page.cursor.places[number] = Place(max(start, ends[number]), reader.term)
        return page

    async def _add(
        self, page: FeedPage, caller: Caller, criteria: RunEventFilter, item: EventItem, oldest_ms: int
    ) -> bool:
        """Add an event that matches; False when its run is not known yet."""
        if self._types[item.raw.schema_id] != criteria.type or criteria.run_id not in ("", item.raw.aggregate):
            return True
        if item.envelope.at_ms < oldest_ms:
            page.is_truncated = True
            return True
        try:
            occurrence, is_known = await self.occurrence(caller, criteria, item)
        except Undecodable:
            return True
        if occurrence is not None:
            page.events.append(occurrence._replace(cursor=page.cursor.behind(item).encode()))
        return is_known

    async def occurrence(
        self, caller: Caller, criteria: RunEventFilter, item: EventItem
    ) -> tuple[RunOccurrence | None, bool]:
        """Return an event that matches and that the caller may see; False when its run is not known yet.

        Raises Undecodable.
        """
        tenant = access_filter(caller).tenant
        if tenant is not None and item.envelope.tenant != tenant:
            return None, True
        run = await self._run(item)
        if run is None:
            return None, False
        matches = (
            not run.is_imported
            and can_see(caller, ResourceOwner(tenant=run.tenant, user_id=run.user_id))
            and criteria.agent in ("", run.agent)
            and criteria.user_id in ("", run.user_id)
            and criteria.session_id in ("", run.session_id)
        )
        if not matches:
            return None, True
        data = {
            "run_id": item.raw.aggregate,
            "agent_id": run.agent_id,
            "session_id": run.session_id,
            "agent": run.agent,
            "user_id": run.user_id,
            "tenant_id": run.tenant,
            **_data(item.record),
        }
        decrypted = await self._sources.content.decrypt(data, run.tenant)
        position = self._sources.barrier.token(item.partition, item.raw.offset)
        return RunOccurrence(position, criteria.type, format_rfc3339(item.envelope.at_ms), decrypted), True

    async def _run(self, item: EventItem) -> _Run | None:
        run_id = item.raw.aggregate
        if (known := self._runs.get(run_id)) is not None:
            return known
        event = item.record
        if isinstance(event, RunStarted):
            is_imported = event.imported_from is not None
            run = _Run(
                item.envelope.tenant,
                event.user_id,
                event.definition.name,
                event.agent_id,
                event.session_id,
                is_imported,
            )
        else:
            row = await self._sources.projection.run(item.envelope.tenant, run_id)
            if row is None:
                return None
            is_imported = bool(row.told_events)
            run = _Run(row.tenant, row.user_id, row.agent, row.agent_id, row.session_id, is_imported)
        self._runs[run_id] = run
        if len(self._runs) > KNOWN_RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        return run

    def follow(
        self, caller: Caller, criteria: RunEventFilter, cursor: FeedCursor, *, oldest_ms: int = 0
    ) -> "FeedStream":
        """Open a stream of the events after a cursor."""
        return FeedStream(self, self._sources, caller, criteria, cursor, oldest_ms)

    def may_match(self, criteria: RunEventFilter, item: EventItem) -> bool:
        """Return whether an item of the hub may match."""
        return self._types.get(item.raw.schema_id) == criteria.type and criteria.run_id in ("", item.raw.aggregate)


class FeedStream:
    """A subscriber's view. `next` and `close`, as in run_stream.RunStream."""

    def __init__(
        self,
        feed: RunFeed,
        sources: StreamSources,
        caller: Caller,
        criteria: RunEventFilter,
        cursor: FeedCursor,
        oldest_ms: int,
    ) -> None:
        self.cursor = cursor
        """Behind everything that was returned."""
        self._feed = feed
        self._sources = sources
        self._caller = caller
        self._criteria = criteria
        self._oldest_ms = oldest_ms
        self._subscription = sources.hub.subscribe_to_states(with_waits=True)
        self._is_behind = True

    async def next(self, timeout_s: float) -> list[RunOccurrence] | None:
        """Return events with their cursors; none when there are none in time; None at the end. Raises Refused."""
        if self._is_behind:
            return await self._read()
        items = await self._subscription.take(timeout_s)
        events: list[RunOccurrence] = []
        for item in items:
            if isinstance(item, EventItem) and item.raw.offset >= self.cursor.places[item.partition].offset:
                if not await self._add(events, item):
                    self._is_behind = True  # it is read again from the log, once its run is known
                    return events
                self.cursor.places[item.partition] = Place(item.raw.offset + 1, item.raw.term)
        if self._subscription.close_reason == SLOW_CONSUMER:
            self._subscription = self._sources.hub.subscribe_to_states(with_waits=True)
            self._is_behind = True
        elif self._subscription.close_reason:
            return events or None
        elif not items:
            self.cursor = self._feed.now()  # nothing is queued, so nothing before it is missing
        return events

    async def _read(self) -> list[RunOccurrence]:
        page = await self._feed.read(
            self._caller, self._criteria, self.cursor, limit=limits.EVENTS_DEFAULT, oldest_ms=self._oldest_ms
        )
        self._is_behind = page.has_more
        if page.has_more and not page.events:
            await asyncio.sleep(limits.CATCH_UP_PAUSE_S)
        self.cursor = page.cursor
        return page.events

    async def _add(self, events: list[RunOccurrence], item: EventItem) -> bool:
        if not self._feed.may_match(self._criteria, item):
            return True
        try:
            occurrence, is_known = await self._feed.occurrence(self._caller, self._criteria, item)
        except Undecodable:
            return True
        if occurrence is not None:
            events.append(occurrence._replace(cursor=self.cursor.behind(item).encode()))
        return is_known

    def close(self) -> None:
        """End the stream."""
        self._subscription.close()


def _data(event: Event) -> dict[str, Any]:
    match event:
        case RunStarted():
            parent = event.parent
            return {
                "parent_run_id": None if parent is None else parent.run_id,
                "interactive": event.options.interactive,
            }
        case RunCompleted():
            return {"status": "completed", "stop_reason": event.stop_reason, "iterations": event.iterations}
        case RunFailed():
            return {"status": "failed", "error": event.error, "error_code": event.code, "iterations": event.iterations}
        case RunCancelled():
            return {"status": "cancelled", "stop_reason": event.reason or None, "iterations": event.iterations}
        case RunParked():
            return {"reason": "input"}
        case RunPaused():
            return {"reason": "pause"}
        case RunQuarantined():
            return {"reason": "quarantine", "error": event.error}
        case InterruptionOpened():
            return {
                "interrupt_id": event.interrupt_id,
                "question": event.question,
                "options": list(event.options),
                "context": event.context or None,
                "expires_at": format_rfc3339(event.expires_at_ms),
            }
        case InterruptionClosed():
            return {"interrupt_id": event.interrupt_id, "status": event.status}
    raise AssertionError(f"{type(event).__name__} is of no type")
