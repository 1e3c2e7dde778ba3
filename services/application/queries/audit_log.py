"""The raw log as an audit view: what was decided, at which position, under which term.

The audit index (projections/audit.py) has the offsets of a run; the records themselves are read from the log, never
from a copy, by the shared reading rule. A page scans a bounded number of records, so it may return few events or none
and a cursor to continue from. Records of a fenced owner are left out of lists; `record` returns them marked `stale`.

Before: a transport. After: log_window.py reads the log.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable, peek, read_envelope
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import Value, replace
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.log_pages import LogCursor, LogReadQueue, foreign_cursor
from loomlog.services.application.queries.log_window import LogWindow
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller, ResourceOwner, access_filter, can_see
from loomlog.services.core.refusals import Refused

CLOCK_SLACK_MS = 60_000
"""Maximum disorder of the times of neighbouring records: writers have clocks of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Filter of events. Offsets need a partition; times are UTC milliseconds; ranges are from <= x < to."""

    run_id: str = ""
    type: str = ""
    """Short or full name of the record."""
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = limits.EVENTS_DEFAULT
    cursor: str = ""


class EventView(Value, frozen=True, kw_only=True):
    """A record of the log for display. `payload` is its body; `at_ms` and `seq` are 0 when the record has none."""

    topic: str
    partition: int
    offset: int
    type: str
    run_id: str
    tenant: str
    term: int
    seq: int
    at_ms: int
    cause_id: str
    cause_offset: int
    payload: Mapping[str, Any]
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events by partition and offset. `next` is the cursor of the next page, empty at the end. `resume` is the cursor
    of what will be written after this page, for a list of one run or one partition.
    """

    events: tuple[EventView, ...]
    next: str
    resume: str = ""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range to read in one partition. `term` None: unknown yet."""

    partition: int
    start: int
    end: int
    term: int | None


class AuditLog:
    """Reads the events topic for auditing."""

    def __init__(
        self, sources: StreamSources, ranges: LogRanges, codec: Codec, *, events_topic: str, commands_topic: str
    ) -> None:
        self._sources = sources
        self._codec = codec
        self._events_window = LogWindow(ranges, codec, events_topic)
        self._commands_window = LogWindow(ranges, codec, commands_topic)
        self.reads = LogReadQueue()
        """Its callers and those of the log browser wait for one another, because they share one range reader."""

    async def events(self, caller: Caller, query: EventQuery) -> EventPage:
        """Return a page of events that the caller may see. Raises Refused."""
        types = self._schema_ids(query.type) if query.type else None
        if query.run_id:
            ranges = [await self._run_range(caller, query)]
        else:
            if caller.is_isolated:
                raise bad_request("run_id is required: the events of one of your runs")
            ranges = []
        async with self.reads.slot(caller):
            if not ranges:
                ranges = await self._partition_ranges(query)
            return await self._read_page(caller, query, types, ranges)

    async def record(self, caller: Caller, topic: str, partition: int, offset: int) -> EventView:
        """Return one record, stale or not. Commands are for administrators. Raises Refused(not_found)."""
        missing = Refused("not_found", f"there is no record {topic[:140]}/{partition}:{offset}")
        window = self._window(topic)
        if window is None or partition not in self._sources.hub.partitions:
            raise missing
        is_command = window is self._commands_window
        if is_command and not caller.is_admin:
            raise missing
        async with self.reads.slot(caller):
            record = await window.record_at(partition, offset)
            term = -1 if is_command or record is None else await window.term_before(partition, offset)
        view = None if record is None else self._to_view(record, window.topic)
        if view is None or not (caller.is_admin or await self._may_see(caller, view)):
            raise missing
        is_stale = not is_command and view.type != Claim.__name__ and view.term != term
        view = replace(view, payload=await self._sources.content.decrypt(view.payload, view.tenant))
        return replace(view, stale=True) if is_stale else view

    def _window(self, topic: str) -> LogWindow | None:
        """Return the topic by its name, with or without the prefix."""
        for window in (self._events_window, self._commands_window):
            if topic in (window.topic, window.topic.partition(".")[2]):
                return window
        return None

    async def ping(self) -> None:
        """Check that the broker answers. Raises Transient."""
        await self._events_window.end_offset(0)

    # --- where to look -----------------------------------------------------------------------------------------------

    async def _run_range(self, caller: Caller, query: EventQuery) -> _Range:
        missing = Refused("not_found", f"there is no run {query.run_id[:140]}")
        if not ID_PATTERN.match(query.run_id):
            raise missing
        await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(query.run_id))
        place = await self._sources.projection.audit_row(scope_of(access_filter(caller)), query.run_id)
        if place is None:
            raise missing
        if caller.is_isolated:
            row = await self._sources.projection.run(place.tenant, query.run_id)
            if row is None or not can_see(caller, ResourceOwner(tenant=row.tenant, user_id=row.user_id)):
                raise missing
        at = self._decode_cursor(query.cursor)
        if at is not None:
            return _Range(place.partition, max(at.start, place.first_offset), place.last_offset + 1, at.term)
        # The first event of a run is in the index because it was valid, so its own term is the one in force.
        return _Range(place.partition, place.first_offset, place.last_offset + 1, None)

    async def _partition_ranges(self, query: EventQuery) -> list[_Range]:
        """Return the ranges of all requested partitions, without those before the cursor."""
        if (query.from_offset is not None or query.to_offset is not None) and query.partition is None:
            raise bad_request("from and to are offsets: name the partition, or give times (RFC 3339)")
        known = self._sources.hub.partitions
        if query.partition is not None and query.partition not in known:
            raise bad_request(f"partition is {query.partition}: expected {known[0]} to {known[-1]}")
        at = self._decode_cursor(query.cursor)
        ranges: list[_Range] = []
        for number in known if query.partition is None else [query.partition]:
            if at is not None and number < at.partition:
                continue
            end = await self._events_window.end_offset(number)
            if query.to_offset is not None:
                end = min(end, query.to_offset)
            if at is not None and number == at.partition:
                ranges.append(_Range(number, at.start, end, at.term))
                continue
            start = await self._events_window.beginning_offset(number)
            if query.from_offset is not None:
                start = max(start, query.from_offset)
            if query.from_ms is not None:
                start = await self._events_window.offset_before(number, start, end, query.from_ms - CLOCK_SLACK_MS)
            ranges.append(_Range(number, start, end, None))
        return ranges

    def _decode_cursor(self, cursor: str) -> _Range | None:
        if not cursor:
            return None
        at = LogCursor.parse(cursor)
        if at.partition not in self._sources.hub.partitions:
            raise foreign_cursor()
        return _Range(at.partition, at.offset, 0, at.term)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read_page(
        self, caller: Caller, query: EventQuery, types: frozenset[int] | None, ranges: Sequence[_Range]
    ) -> EventPage:
        limit = max(1, min(query.limit, limits.EVENTS_MAX))
        views: list[EventView] = []
        scanned = 0
        resume = ""
        for number, one in enumerate(ranges):
            reader = TermReader(codec=self._codec, term=await self._start_term(query, one), next_offset=one.start)
            async with aclosing(self._events_window.records(one.partition, one.start, one.end)) as records:
                async for record in records:
                    scanned += 1
                    view = self._matching_view(caller, query, types, reader, record)
                    if view is not None:
                        views.append(view)
                    if query.to_ms is not None and record.timestamp >= query.to_ms + CLOCK_SLACK_MS:
                        break
                    if len(views) >= limit or scanned >= limits.EVENTS_SCANNED_MAX:
                        is_end = record.offset + 1 >= one.end and number == len(ranges) - 1
                        cursor = LogCursor(one.partition, record.offset + 1, reader.term).encode()
                        return EventPage(
                            events=await self._decrypt_events(views),
                            next="" if is_end else cursor,
                            resume=cursor if len(ranges) == 1 else "",
                        )
            if len(ranges) == 1:
                resume = LogCursor(one.partition, max(one.start, one.end), reader.term).encode()
        return EventPage(events=await self._decrypt_events(views), next="", resume=resume)

    async def _decrypt_events(self, views: Sequence[EventView]) -> tuple[EventView, ...]:
        content = self._sources.content
        return tuple([replace(view, payload=await content.decrypt(view.payload, view.tenant)) for view in views])

    async def _start_term(self, query: EventQuery, read_range: _Range) -> int:
        if read_range.term is not None:
            return read_range.term
        if query.run_id:
            first = await self._events_window.record_at(read_range.partition, read_range.start)
            return -1 if first is None else peek(first.value or b"").term
        return await self._events_window.term_before(read_range.partition, read_range.start)

    def _matching_view(
        self, caller: Caller, query: EventQuery, types: frozenset[int] | None, reader: TermReader, record: LogRecord
    ) -> EventView | None:
        claims = reader.claims
        try:
            raw = reader.read(record.offset, record.value)
        except Undecodable:
            # It belongs to no run and no tenant: only a caller who may see everything sees it, as a single record.
            return None
        if raw is None:
            is_claim = reader.claims > claims and caller.is_admin and not query.run_id
            if not is_claim or (types is not None and not types & self._events_window.claim_ids):
                return None
        elif (types is not None and raw.schema_id not in types) or (query.run_id and raw.aggregate != query.run_id):
            return None
        envelope, _ = read_envelope(record.value or b"")
        if not caller.is_admin and envelope.tenant != caller.tenant:
            return None
        if query.from_ms is not None and envelope.at_ms < query.from_ms:
            return None
        if query.to_ms is not None and envelope.at_ms >= query.to_ms:
            return None
        return self._to_view(record, self._events_window.topic)

    def _to_view(self, record: LogRecord, topic: str) -> EventView | None:
        """Return a record for display; None for an unreadable one."""
        try:
            decoded = self._codec.decode(record.value or b"")
        except Undecodable:
            return None
        envelope: Envelope | None = decoded.envelope
        body = decoded.record.to_avro()
        command = body.pop("envelope", {}) if envelope is None else {}
        return EventView(
            topic=topic,
            partition=record.partition,
            offset=record.offset,
            type=type(decoded.record).__name__,
            run_id=envelope.aggregate if envelope else body.get("run_id", ""),
            tenant=envelope.tenant if envelope else command.get("tenant", ""),
            term=envelope.term if envelope else -1,
            seq=envelope.seq if envelope else 0,
            at_ms=envelope.at_ms if envelope else command.get("issued_at_ms", 0),
            cause_id=envelope.cause_id if envelope else command.get("command_id", ""),
            cause_offset=envelope.cause_offset if envelope else -1,
            payload=body,
        )

    async def _may_see(self, caller: Caller, view: EventView) -> bool:
        if view.tenant != caller.tenant or view.type == Claim.__name__:
            return False
        if not caller.is_isolated:
            return True
        row = await self._sources.projection.run(view.tenant, view.run_id)
        return row is not None and can_see(caller, ResourceOwner(tenant=row.tenant, user_id=row.user_id))

    def _schema_ids(self, name: str) -> frozenset[int]:
        full = name if "." in name else f"loom.run.events.{name}"
        schema_ids = self._codec.schema_ids_of(frozenset({full, Claim.SCHEMA} if name == Claim.__name__ else {full}))
        if not schema_ids:
            raise bad_request(f"type is {name[:80]!r}: expected the name of an event, for example RunStarted")
        return schema_ids
