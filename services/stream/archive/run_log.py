"""One run in the log: its accepted records, and the runs whose conversation it continues.

All readers of whole runs use this: replay, time travel, export. A range begins in the middle of a partition, so the
term in force there is needed: at a position named by an accepted event or the audit index it is the term of the first
record; elsewhere it is that of the nearest Claim before.

A lineage is found from first events alone, newest run first, and then folded from the oldest, a record at a time.

Before: loomlog.connectors.protocols.LogRanges. After: services/core/run/history/replay.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from msgspec import Struct

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable, peek, read_envelope
from loomlog.schemas.generated.values import ForkPoint
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.history.replay import ReplayResult, RunFold, TimelineEntry
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from loomlog.services.stream.partition.ended_aggregates import CHAIN_LENGTH_MAX, EventLocation
from loomlog.services.stream.partition.fold import BrokenHistory

WINDOW = 5_000
"""Offsets read in one request, so that a slow reader does not block others."""
YIELD_EVERY = 200
"""Events folded before the event loop gets a turn: a few milliseconds."""


class RecordedEvent(Struct, frozen=True):
    """An accepted event with its record."""

    record: LogRecord
    event: RawEvent


class LineageSegment(Value, frozen=True, kw_only=True):
    """A run of a lineage: its position, and the seq up to which it is needed (0: all)."""

    run_id: str
    first_offset: int
    end_offset: int
    """Offset after the last record to read."""
    until_seq: int = 0
    digest: str = ""
    """Digest of the event `until_seq`, hex, as its fork names it; empty if not known."""
    role: str = "run"
    """run, continued or forked."""


@dataclass(slots=True)
class ReadStats:
    """Counts of a read besides the events of the run."""

    stale: int = 0
    """Records of the run whose writer had been fenced."""


class RunLog:
    """Reads runs of one events partition."""

    def __init__(self, ranges: LogRanges, codec: Codec, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._ranges = ranges
        self._codec = codec

    async def accepted(
        self, link: LineageSegment, *, term: int | None = None, tally: ReadStats | None = None
    ) -> AsyncGenerator[RecordedEvent, None]:
        """Yield the accepted events of the run in offset order; close it when you leave early.

        `term` is the one in force at `first_offset`; None takes that of the first record, which is right where an
        accepted event begins.
        """
        reader: TermReader | None = None
        for start in range(link.first_offset, link.end_offset, WINDOW):
            for record in await self._window(start, min(start + WINDOW, link.end_offset)):
                try:
                    if reader is None:
                        begins = peek(record.value or b"").term if term is None else term
                        reader = TermReader(codec=self._codec, term=begins, next_offset=record.offset)
                    skipped = reader.stale
                    event = reader.read(record.offset, record.value)
                    if event is None:
                        is_ours = reader.stale > skipped and _aggregate(record) == link.run_id
                        if is_ours and tally is not None:
                            tally.stale += 1
                        continue
                except Undecodable:
                    continue  # of no run; if it had been one of ours, the seq has a gap and the chain is broken
                if event.aggregate == link.run_id:
                    yield RecordedEvent(record, event)
                    if event.seq == link.until_seq:
                        return

    async def _window(self, start: int, end: int) -> list[LogRecord]:
        records: list[LogRecord] = []
        async with await self._ranges.read(self.topic, self.partition, start, end) as chunks:
            async for chunk in chunks:
                records += chunk
        return records

    async def lineage(self, link: LineageSegment, first: RawEvent) -> list[LineageSegment]:
        """Return the run and all runs it continues, oldest first. Raises BrokenHistory if one is missing."""
        links = [link]
        place = conversation_origin(self._codec.decode(first.value).record)
        while place is not None:
            if len(links) > CHAIN_LENGTH_MAX:
                raise BrokenHistory(f"more than {CHAIN_LENGTH_MAX} runs are chained at {place.run_id}")
            if place.last_offset >= links[-1].first_offset:
                raise BrokenHistory(f"{links[-1].run_id} says it goes on with a run that lies after it")
            earlier = segment_of(place)
            place = conversation_origin(self._codec.decode((await self._first_event(earlier)).value).record)
            links.append(earlier)
        return links[::-1]

    async def first(self, link: LineageSegment, *, term: int | None = None) -> RawEvent | None:
        """Return the first accepted event of the run there; None if there is none."""
        async with aclosing(self.accepted(link, term=term)) as generator:
            async for recorded in generator:
                return recorded.event
        return None

    async def _first_event(self, link: LineageSegment) -> RawEvent:
        event = await self.first(link)
        if event is not None:
            return event
        raise BrokenHistory(
            f"the run {link.run_id}, which another goes on with, is not at offset {link.first_offset} of "
            f"{self.topic}/{self.partition}: the log is not whole"
        )


async def fold_run(
    log: RunLog,
    links: Sequence[LineageSegment],
    *,
    codec: Codec,
    to_seq: int = 0,
    through_bytes: bool = True,
    tally: ReadStats | None = None,
    seen: Callable[[LineageSegment, RecordedEvent, TimelineEntry | None], None] = lambda link, recorded, entry: None,
) -> ReplayResult:
    """Fold the newest run of a lineage up to `to_seq` (0: all), with the runs it continues; its timeline is kept.

    Drift of an earlier run is drift of this one. `seen` receives every event. Raises Transient.
    """
    before: ReplayResult | None = None
    drift: list[str] = []
    first_drift_seq = 0
    for link in links:
        is_newest = link is links[-1]
        segment = replace(link, until_seq=to_seq) if is_newest and to_seq else link
        history = () if before is None else before.history
        folding = RunFold(link.run_id, history=history, codec=codec, checks_roundtrip=through_bytes)
        entries: list[TimelineEntry] = []
        async with aclosing(log.accepted(segment, tally=tally if is_newest else None)) as generator:
            async for recorded in generator:
                entry = folding.apply(recorded.event)
                seen(link, recorded, entry)
                if entry is not None and is_newest:
                    entries.append(entry)
                if folding.seq % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        if link.digest and (folding.seq, folding.tail_digest.hex()) != (link.until_seq, link.digest):
            folding.report_drift(
                folding.seq, f"it is at seq {folding.seq}, not at the event {link.until_seq} that was forked"
            )
        before = folding.result(tuple(entries))
        drift += before.drift if is_newest else [f"{link.run_id}: {sentence}" for sentence in before.drift]
        first_drift_seq = first_drift_seq or before.first_drift_seq
    assert before is not None, "a lineage has at least the run itself"
    return replace(before, drift=tuple(drift), first_drift_seq=first_drift_seq)


def segment_of(place: EventLocation) -> LineageSegment:
    """Return the segment that a first event continues."""
    is_fork = isinstance(place, ForkPoint)
    return LineageSegment(
        run_id=place.run_id,
        first_offset=place.first_offset,
        end_offset=place.last_offset + 1,
        until_seq=place.seq if isinstance(place, ForkPoint) else 0,
        digest=place.digest if isinstance(place, ForkPoint) else "",
        role="forked" if is_fork else "continued",
    )


def _aggregate(record: LogRecord) -> str:
    return read_envelope(record.value or b"")[0].aggregate
