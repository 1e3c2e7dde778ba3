"""Aggregates that are over, loaded from the log by their place in it.

A run that continues an earlier one names where that one lies in the same partition, so its fold needs the log and
nothing else. What was loaded is kept for a while: chats go on quickly.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from connectors.protocols import LogRanges
from schemas.codec import Codec, Undecodable, peek
from schemas.reader import RawEvent, TermReader
from schemas.values import RunPosition
from services.stream.family import Family
from services.stream.fold import BrokenHistory, fold_event
from services.stream.partition import Aggregate

KEEP_STATES = 500
"""States of ended aggregates kept in memory; a long chat has about 100 KB."""
MAX_CHAIN = 10_000
"""Runs one session may chain; stops a damaged log that names itself."""


class Past:
    """Reads ended aggregates of one events topic."""

    def __init__(self, family: Family, codec: Codec, ranges: LogRanges, events_topic: str) -> None:
        self._family = family
        self._codec = codec
        self._ranges = ranges
        self._topic = events_topic
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def keep(self, aggregate: str, state: Any) -> None:
        """Remember the last state of an aggregate that just ended."""
        self._kept[aggregate] = state
        self._kept.move_to_end(aggregate)
        if len(self._kept) > KEEP_STATES:
            self._kept.popitem(last=False)

    def kept(self, aggregate: str) -> Any | None:
        return self._kept.get(aggregate)

    async def load(self, partition: int, position: RunPosition) -> Aggregate:
        """The aggregate at that place, with its last state. Raises BrokenHistory when it is not all there.

        What it continues is read first, link by link and not by recursion: a chat may have thousands of runs.
        """
        links = [await self._read(partition, position)]
        while (earlier := links[-1].continues) is not None and earlier.run_id not in self._kept:
            if len(links) >= MAX_CHAIN:
                raise BrokenHistory(f"more than {MAX_CHAIN} runs are chained at {position.run_id}")
            if earlier.last_offset >= links[-1].position.first_offset:
                raise BrokenHistory(f"{links[-1].position.run_id} says it continues a run that ended later")
            links.append(await self._read(partition, earlier))
        state = self._kept[earlier.run_id] if earlier is not None else None
        while True:
            link = links.pop()
            aggregate = await self._folded(link, self._family.history(state) if link.continues is not None else None)
            if not links:
                return aggregate
            state = aggregate.state
            self.keep(aggregate.id, state)

    async def _read(self, partition: int, position: RunPosition) -> "_Link":
        """The accepted events of the aggregate at that place."""
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
        if not events or events[-1].offset != position.last_offset:
            raise BrokenHistory(f"{position.run_id} does not end at offset {position.last_offset}")
        first = self._codec.decode(events[0].value).record
        return _Link(position, key, tuple(events), getattr(first, "continues", None))

    async def _folded(self, link: "_Link", earlier: Any) -> Aggregate:
        run_id = link.position.run_id
        aggregate = Aggregate(id=run_id, state=self._family.absent(run_id, None), key=link.key, tenant="")

        async def history(_: Any) -> Any:
            return earlier

        for event in link.events:
            await fold_event(aggregate, event, family=self._family, codec=self._codec, history=history)
        if not self._family.is_over(aggregate.state):
            raise BrokenHistory(f"{run_id} is not over at offset {link.position.last_offset}")
        return aggregate

    async def state(self, partition: int, position: RunPosition) -> Any:
        """The last state of the aggregate at that place."""
        kept = self._kept.get(position.run_id)
        if kept is None:
            kept = (await self.load(partition, position)).state
            self.keep(position.run_id, kept)
        return kept

    async def history_for(self, partition: int, first_event: Any) -> Any:
        """What the first event of an aggregate says it continues; None when it continues nothing."""
        continues = getattr(first_event, "continues", None)
        if continues is None:
            return None
        return self._family.history(await self.state(partition, continues))


@dataclass(frozen=True, slots=True)
class _Link:
    """One run of a chain, read and not folded yet. `continues` names the one before it."""

    position: RunPosition
    key: bytes
    events: tuple[RawEvent, ...]
    continues: RunPosition | None
