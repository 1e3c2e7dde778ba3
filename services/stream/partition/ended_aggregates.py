"""Ended aggregates, loaded from the log by position.

A run that continues an earlier one names its position in the same partition, so its fold needs the log and nothing
else. Loaded states are cached: chats continue quickly. A fork names a position in the middle of an earlier run, by seq
and digest; then only the events up to it are read, and that run need not have ended.
"""

from collections import OrderedDict
from typing import Any

from msgspec import Struct

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec, Undecodable, digest, peek
from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import Value, replace
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.fold import BrokenHistory, fold_event
from loomlog.services.stream.partition.partition import Aggregate

CACHED_STATES_MAX = 500
"""States of ended aggregates kept in memory; a long chat has about 100 KB."""
CHAIN_LENGTH_MAX = 10_000
"""Runs one session may chain; stops a damaged log that refers to itself."""


EventLocation = RunPosition | ForkPoint
"""The end of an ended aggregate, or an event in the middle of any."""


class Prefix(Struct, frozen=True):
    """An aggregate as it was after one of its events, with its first event and the fork point.

    An aggregate that was read to its end has neither.
    """

    aggregate: Aggregate
    started: Any
    point: ForkPoint | None


class EndedAggregates:
    """Reads ended aggregates of one events topic."""

    def __init__(self, family: Family, codec: Codec, ranges: LogRanges, events_topic: str) -> None:
        self._family = family
        self._codec = codec
        self._ranges = ranges
        self._topic = events_topic
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def cache(self, aggregate: str, state: Any) -> None:
        """Cache the last state of an aggregate that just ended."""
        self._kept[aggregate] = state
        self._kept.move_to_end(aggregate)
        if len(self._kept) > CACHED_STATES_MAX:
            self._kept.popitem(last=False)

    def cached(self, aggregate: str) -> Any | None:
        return self._kept.get(aggregate)

    async def load(self, partition: int, position: EventLocation) -> Aggregate:
        """Return the aggregate at that position, with its last state. Raises BrokenHistory if it is not complete.

        The aggregates it continues are read first, iteratively and not by recursion: a chat may have thousands of runs.
        """
        return await self._loaded(partition, await self._read(partition, position))

    async def prefix(self, partition: int, position: RunPosition, seq: int) -> Prefix | None:
        """Return the aggregate at that position as it was after its event `seq`; None if it has no such event there.

        Raises BrokenHistory if its history is not complete.
        """
        link = await self._read(partition, position, until_seq=seq)
        if not link.events or link.events[-1].seq != seq:
            return None
        last = link.events[-1]
        point = ForkPoint(
            run_id=position.run_id,
            first_offset=link.events[0].offset,
            last_offset=last.offset,
            seq=seq,
            digest=digest(last.value).hex(),
        )
        started = self._codec.decode(link.events[0].value).record
        return Prefix(await self._loaded(partition, replace(link, position=point)), started, point)

    async def refold(self, partition: int, aggregate: Aggregate) -> Aggregate | str:
        """Fold a live aggregate, all of which is in the log, from its first event; returns the reason if it cannot be.

        Raises Transient. The state in memory is not changed.
        """
        place = RunPosition(run_id=aggregate.id, first_offset=aggregate.first_offset, last_offset=aggregate.last_offset)
        try:
            prefix = await self.prefix(partition, place, aggregate.seq)
        except Transient:
            raise  # the run is intact: the log did not answer
        except Exception as error:  # noqa: BLE001 - whatever is wrong with its history is what was asked
            return f"{type(error).__name__}: {error}"
        if prefix is None or prefix.aggregate.digest != aggregate.digest:
            return f"BrokenHistory: {aggregate.id} has no event {aggregate.seq} at offset {aggregate.last_offset}"
        return prefix.aggregate

    async def is_claimed_since(self, partition: int, offset: int) -> bool:
        """Return whether the partition was claimed at the offset or later, by any owner. Raises Transient."""
        end = await self._ranges.end_offset(self._topic, partition)
        if end <= offset:
            return False
        reader = TermReader(codec=self._codec)
        async with await self._ranges.read(self._topic, partition, offset, end) as chunks:
            async for records in chunks:
                for record in records:
                    try:
                        reader.read(record.offset, record.value)
                    except Undecodable:
                        continue  # it is no claim
        return reader.claims > 0

    async def _loaded(self, partition: int, newest: "_Link") -> Aggregate:
        links = [newest]
        while (earlier := links[-1].earlier) is not None and _name(earlier) not in self._kept:
            if len(links) >= CHAIN_LENGTH_MAX:
                raise BrokenHistory(f"more than {CHAIN_LENGTH_MAX} runs are chained at {newest.position.run_id}")
            if earlier.last_offset >= links[-1].position.first_offset:
                raise BrokenHistory(f"{links[-1].position.run_id} says it continues a run that ended later")
            links.append(await self._read(partition, earlier))
        state = self._kept[_name(earlier)] if earlier is not None else None
        while True:
            link = links.pop()
            aggregate = await self._folded(
                link, self._family.lineage.history(state) if link.earlier is not None else None
            )
            if not links:
                return aggregate
            state = aggregate.state
            self.cache(_name(link.position), state)

    async def _read(self, partition: int, position: EventLocation, *, until_seq: int = 0) -> "_Link":
        """Read the accepted events of the aggregate at that position; with `until_seq` those up to it, as far as there
        are.
        """
        key = b""
        events: list[RawEvent] = []
        # The writer's term is in the record itself: every accepted record of the range between its Claims is found by
        # starting with the term of the first one.
        reader: TermReader | None = None
        async with await self._ranges.read(
            self._topic, partition, position.first_offset, position.last_offset + 1
        ) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    try:
                        if reader is None:
                            term = peek(record.value).term if record.value is not None else -1
                            reader = TermReader(codec=self._codec, term=term, next_offset=record.offset)
                        event = reader.read(record.offset, record.value)
                    except Undecodable:
                        continue  # foreign bytes; were they of this aggregate, its hash chain would show it
                    if event is not None and event.aggregate == position.run_id:
                        key = record.key or key
                        events.append(event)
                        if event.seq == until_seq:
                            return self._link(position, key, events)
        if not until_seq and (not events or events[-1].offset != position.last_offset):
            raise BrokenHistory(f"{position.run_id} does not end at offset {position.last_offset}")
        return self._link(position, key, events)

    def _link(self, position: EventLocation, key: bytes, events: list[RawEvent]) -> "_Link":
        first = self._codec.decode(events[0].value).record if events else None
        return _Link(position, key, tuple(events), self._family.lineage.origin(first))

    async def _folded(self, link: "_Link", earlier: Any) -> Aggregate:
        run_id = link.position.run_id
        aggregate = Aggregate(id=run_id, state=self._family.absent(run_id), key=link.key, tenant="")

        async def history(_: Any) -> Any:
            return earlier

        for event in link.events:
            await fold_event(aggregate, event, family=self._family, codec=self._codec, history=history)
        place = link.position
        if isinstance(place, ForkPoint):
            if (aggregate.seq, aggregate.digest.hex()) != (place.seq, place.digest):
                raise BrokenHistory(f"{run_id} has another event at offset {place.last_offset} than was forked")
        elif not self._family.is_ended(aggregate.state):
            raise BrokenHistory(f"{run_id} is not over at offset {place.last_offset}")
        return aggregate

    async def read_value(self, partition: int, offset: int) -> bytes | None:
        """Return the record at an offset; None when there is none. Raises Transient."""
        return await read_value(self._ranges, self._topic, partition, offset)

    async def state(self, partition: int, position: EventLocation) -> Any:
        """Return the state of the aggregate at that position."""
        kept = self._kept.get(_name(position))
        if kept is None:
            kept = (await self.load(partition, position)).state
            self.cache(_name(position), kept)
        return kept

    async def history_for(self, partition: int, first_event: Any) -> Any:
        """Return the history that the first event of an aggregate continues; None if it continues none."""
        origin = self._family.lineage.origin(first_event)
        if origin is None:
            return None
        return self._family.lineage.history(await self.state(partition, origin))


class _Link(Value, frozen=True):
    """One run of a chain, read and not folded yet. `earlier` names the one before it."""

    position: EventLocation
    key: bytes
    events: tuple[RawEvent, ...]
    earlier: EventLocation | None


def _name(position: EventLocation) -> str:
    """Cache key of a state: the id for the end of an aggregate, id and seq for a position in its middle."""
    return position.run_id if isinstance(position, RunPosition) else f"{position.run_id}@{position.seq}"


async def read_value(ranges: LogRanges, topic: str, partition: int, offset: int) -> bytes | None:
    """Return the value of the record at an offset; None when there is none. Raises Transient."""
    value = None
    async with await ranges.read(topic, partition, offset, offset + 1) as chunks:
        async for chunk in chunks:
            value = next((record.value for record in chunk if record.offset == offset), value)
    return value
