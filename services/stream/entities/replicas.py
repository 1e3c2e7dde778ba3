"""The replicated families, as far as this process has read; and the answers to commands that it sent by the topic.

Every process with the application layer or with calls follows loom.entity.events: it folds the aggregates of the
replicated families, which are few and small, and peeks at the others. It has them without a round trip, may lag, and
says how far it has read (`wait`). An event that does not fit quarantines that aggregate here; the others go on.

Before: the owners append. After: readers of a family, client.py for answers, read_your_writes.py for positions.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogRanges, LogRecord, LogTail
from loomlog.schemas.codec import Codec, Undecodable, read_envelope
from loomlog.schemas.ids import command_identity
from loomlog.schemas.position import Position
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import aggregate_key
from loomlog.services.stream.entities.answers import Answer, CommandReused
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.families import EntityFamilies, mark_unfolded
from loomlog.services.stream.partition.fold import aggregate_from, fold_events
from loomlog.services.stream.partition.partition import Aggregate

log = logging.getLogger(__name__)

POLL_S = 1.0
REST_S = 0.02
"""Rest after a poll that nothing here waited for: each poll of a busy topic costs broker and process a millisecond. A
process that does not know what another one has just changed, such as a limit, is as late as this; a request that does
not find something reads to the end first (services/stream/entities/absence.py).
"""
POLL_RECORDS_MAX = 5_000
"""Records of one poll. Fewer are whole batches, so a poll of fewer ends with the end of a decision."""


class Replicas:
    """The aggregates of the replicated families. `changed` of a family is called after its state has changed."""

    def __init__(
        self,
        family: EntityFamilies,
        codec: Codec,
        *,
        events_topic: str,
        partitions: int,
        checkpoints: EntityCheckpoints,
        ranges: LogRanges,
    ) -> None:
        self.next_offsets: dict[int, int] = {}
        self.records_read = 0
        """Grows with every record that is read; each request asks."""
        self.topic = events_topic
        self.partitions = partitions
        self._family = family
        self._codec = codec
        self._checkpoints = checkpoints
        self._ranges = ranges
        self._restatements = codec.schema_ids_of(family.restatements)
        self._prefixes = frozenset(family.families.replicated)
        self._aggregates: dict[str, Aggregate] = {}
        self._readers: dict[int, TermReader] = {}
        self._waiting: dict[tuple[str, str], list[tuple[str, asyncio.Future[Answer]]]] = {}
        self._cut: dict[int, dict[tuple[str, str], list[RawEvent]]] = {}
        """The answer at the end of a poll, which may go on with the next one, by partition."""
        self._changed: dict[str, list[Callable[[], None]]] = {}
        self._folded: dict[str, list[Callable[[str], None]]] = {}
        self._read: dict[str, list[Callable[[int, RawEvent], None]]] = {}
        self._grown = asyncio.Event()
        self._awaited = asyncio.Event()
        """Set when something begins to wait for records."""
        self._is_read_at_once = False

    # --- queries -----------------------------------------------------------------------------------------------------

    def entity(self, aggregate: str) -> Entity[Any] | None:
        """Return an aggregate of a replicated family as far as this process has read; None if it has no events."""
        folded = self._aggregates.get(aggregate)
        return None if folded is None else folded.state

    def position(self, aggregate: str) -> str:
        """Return the position token of the last event of an aggregate that was read; empty without one."""
        folded = self._aggregates.get(aggregate)
        if folded is None:
            return ""
        partition = partition_of(folded.key, self.partitions)
        return str(Position(topic=self.topic, partition=partition, offset=folded.last_offset))

    def term(self, partition: int) -> int:
        """Return the term in force in a partition as far as this process has read; -1 before the first."""
        reader = self._readers.get(partition)
        return -1 if reader is None else reader.term

    def next_offset(self, partition: int) -> int:
        """Return the offset after the last record that was read."""
        return self.next_offsets.get(partition, 0)

    def has_read(self, positions: Iterable[str]) -> bool:
        """Whether the records at these positions have been read. Raises ValueError for one of another topic."""
        return all(one.offset < self.next_offsets.get(one.partition, 0) for one in map(self._parse, positions))

    async def read_to(self, positions: Iterable[str], *, timeout_s: float) -> None:
        """Wait until the records at these positions have been read; a position beyond the end means the end.

        Raises Transient after `timeout_s` for each, and ValueError as `has_read` does.
        """
        for one in map(self._parse, positions):
            if await self.wait(one.partition, one.offset, timeout_s=0):
                await self.caught_up(one.partition, timeout_s=timeout_s)

    def _parse(self, text: str) -> Position:
        position = Position.parse(text)
        if position.topic != self.topic or position.partition >= self.partitions:
            expected = f"{self.topic}, partition 0 to {self.partitions - 1}"
            raise ValueError(f"the position {position} is not read here: expected one of {expected}")
        return position

    def state(self, aggregate: str) -> Any:
        """Return the state of an aggregate of a replicated family, as `entity`; the initial one if it has no events."""
        known = self._aggregates.get(aggregate)
        return (self._family.absent(aggregate) if known is None else known.state).state

    def entities(self, family: str, tenant: str) -> list[Entity[Any]]:
        """Return the aggregates of a tenant, sorted by id."""
        prefix = f"{family}:{tenant}/"
        return [self._aggregates[name].state for name in sorted(self._aggregates) if name.startswith(prefix)]

    def quarantined(self) -> list[Entity[Any]]:
        """Return the aggregates that are quarantined, sorted by id."""
        states = (self._aggregates[name].state for name in sorted(self._aggregates))
        return [entity for entity in states if entity.quarantine]

    def __len__(self) -> int:
        """Number of aggregates."""
        return len(self._aggregates)

    def on_change(self, family: str, changed: Callable[[], None]) -> None:
        """Call `changed` after events of the family were folded."""
        self._changed.setdefault(family, []).append(changed)

    def on_fold(self, family: str, folded: Callable[[str], None]) -> None:
        """Call `folded` with the id of each aggregate of the family that has events, now and after further ones."""
        self._folded.setdefault(family, []).append(folded)
        for name in self._aggregates:
            if name.partition(":")[0] == family:
                folded(name)

    def on_event(self, family: str, read: Callable[[int, RawEvent], None], *, at_once: bool = False) -> None:
        """Call `read` with the partition and each event of the family from now on, replicated or not.

        `at_once`: without a rest between two polls.
        """
        self._read.setdefault(family, []).append(read)
        self._is_read_at_once |= at_once

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until the record at the offset has been read; returns the number of missing records, 0 when it has."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.next_offsets.get(partition, 0) <= offset:
                    self._awaited.set()
                    await self._grown.wait()
        except TimeoutError:
            pass  # the result says how many are missing
        return max(0, offset + 1 - self.next_offsets.get(partition, 0))

    async def catch_up(self, *, timeout_s: float) -> None:
        """Wait until everything that is in the log now is read. Raises Transient on timeout."""
        ends = await self._ranges.end_offsets(self.topic, self.partitions)
        for partition, end in ends.items():
            await self._reach(partition, end, timeout_s=timeout_s)

    async def end_offset(self, partition: int) -> int:
        """Return where a partition ends in the log now. Raises Transient."""
        return await self._ranges.end_offset(self.topic, partition)

    async def caught_up(self, partition: int, *, timeout_s: float) -> None:
        """Wait until everything that is in a partition now is read. Raises Transient on timeout."""
        await self._reach(partition, await self.end_offset(partition), timeout_s=timeout_s)

    async def _reach(self, partition: int, end: int, *, timeout_s: float) -> None:
        missing = await self.wait(partition, end - 1, timeout_s=timeout_s) if end else 0
        if missing:
            raise Transient(f"{missing} records of {self.topic}/{partition} are not read yet", kind="unavailable")

    def expect(self, aggregate: str, command_id: str) -> "asyncio.Future[Answer]":
        """Return a future of the answer to a command that is about to be sent. Release it with `forget`.

        It raises CommandReused when the answer is that of a command with another body.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((aggregate, command_identity(command_id)), []).append((command_id, answer))
        self._awaited.set()
        return answer

    def forget(self, aggregate: str, command_id: str, answer: "asyncio.Future[Answer]") -> None:
        """Nothing waits for that future any more; others may wait for the same command."""
        command = (aggregate, command_identity(command_id))
        waiting = self._waiting.get(command, [])
        waiting.remove((command_id, answer))
        if not waiting:
            self._waiting.pop(command, None)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read everything there is now. Raises Transient."""
        for partition in range(self.partitions):
            first = await self._ranges.beginning_offset(self.topic, partition)
            start = await self._checkpoints.load(partition, first)
            if start.ignored:
                log.warning("%s/%d: read from offset %d because %s", self.topic, partition, first, start.ignored)
            for name, base in start.bases.items():
                self._aggregates[name] = aggregate_from(name, base)
                self._tell_folded(name)
            self._readers[partition] = TermReader(codec=self._codec, term=start.term, next_offset=start.next_offset)
            self.next_offsets[partition] = start.next_offset
            end = await self._ranges.end_offset(self.topic, partition)
            if start.next_offset < end:
                async with await self._ranges.read(self.topic, partition, start.next_offset, end) as chunks:
                    async for chunk in chunks:
                        await self.feed(partition, chunk)
                        await asyncio.sleep(0)  # heartbeats share this event loop

    async def follow(self, tail: LogTail) -> None:
        """Follow the log until cancelled."""
        for partition, offset in self.next_offsets.items():
            tail.seek(partition, offset)
        while True:
            polled = await tail.poll(timeout_s=POLL_S, max_records=POLL_RECORDS_MAX)
            is_cut = sum(map(len, polled.values())) >= POLL_RECORDS_MAX
            for partition, records in polled.items():
                await self.feed(partition, records, is_cut=is_cut)
            if not is_cut:
                for partition in list(self._cut):
                    await self.feed(partition, ())
                await self._rest()

    async def _rest(self) -> None:
        """Rest, unless something waits for records or begins to."""
        if self._waiting or self._is_read_at_once:
            return
        try:
            async with asyncio.timeout(REST_S):
                await self._awaited.wait()
        except TimeoutError:
            pass  # the rest is over
        self._awaited.clear()

    async def feed(self, partition: int, records: Sequence[LogRecord], *, is_cut: bool = False) -> None:
        """Read records in offset order. `is_cut`: they may end within a decision."""
        reader = self._readers[partition]
        touched: dict[str, list[RawEvent]] = {}
        answers = self._cut.pop(partition, {})
        for record in records:
            if record.offset < reader.next_offset:
                continue
            try:
                event = reader.read(record.offset, record.value)
            except Undecodable as error:
                log.error("%s/%d offset %d is left out: %s", self.topic, partition, record.offset, error)
                continue
            if event is None:
                continue
            if self._waiting:
                command = (event.aggregate, command_identity(read_envelope(event.value)[0].cause_id))
                if command in self._waiting:
                    answers.setdefault(command, []).append(event)
            family = event.aggregate.partition(":")[0]
            for read in self._read.get(family, ()):
                read(partition, event)
            if family in self._prefixes:
                touched.setdefault(event.aggregate, []).append(event)
        for name, events in touched.items():
            await self._fold(name, events)
            self._tell_folded(name)
        self.records_read += reader.next_offset - self.next_offsets[partition]
        self.next_offsets[partition] = reader.next_offset
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
        for name in {name.partition(":")[0] for name in touched}:
            for changed in self._changed.get(name, ()):
                changed()
        for command, events in answers.items():
            if is_cut and events[-1].offset == reader.next_offset - 1:
                self._cut[partition] = {command: events}
            else:
                self._resolve(command, partition, events)

    def _tell_folded(self, name: str) -> None:
        for folded in self._folded.get(name.partition(":")[0], ()):
            folded(name)

    async def _fold(self, name: str, events: Sequence[RawEvent]) -> None:
        aggregate = self._aggregates.get(name)
        if aggregate is None:
            aggregate = Aggregate(id=name, state=self._family.absent(name), key=aggregate_key(name), tenant="")
            self._aggregates[name] = aggregate
        # A restatement counts whatever its seq: its owner may not have seen the event that broke the fold here.
        is_restated = any(event.schema_id in self._restatements for event in events)
        fresh = [event for event in events if is_restated or event.seq > aggregate.seq]
        if aggregate.pending_events and not is_restated:
            return  # it cannot be folded past a broken event until it is repaired
        aggregate.pending_events, aggregate.quarantined = False, ""
        await fold_events(
            aggregate,
            fresh,
            family=self._family,
            codec=self._codec,
            restatements=self._restatements,
        )
        if aggregate.pending_events:
            mark_unfolded(aggregate)
            log.error("%s cannot be read past %s", name, aggregate.quarantined)

    def _resolve(self, command: tuple[str, str], partition: int, events: Sequence[RawEvent]) -> None:
        cause_id = read_envelope(events[-1].value)[0].cause_id
        waiting = []
        for command_id, answer in self._waiting.get(command, ()):
            if not answer.done() and command_id == cause_id:
                waiting.append(answer)
            elif not answer.done():
                answer.set_exception(CommandReused(command_id))
        if not waiting:
            return
        try:
            decoded = tuple(self._codec.decode(event.value).record for event in events)
        except Undecodable as error:
            for answer in waiting:
                answer.set_exception(Transient(f"the answer cannot be read: {error}", kind="invalid"))
            return
        for answer in waiting:
            answer.set_result(Answer(events=decoded, topic=self.topic, partition=partition, offset=events[-1].offset))
