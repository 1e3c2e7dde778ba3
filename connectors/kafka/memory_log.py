"""The log in memory: same protocols, no broker. For tests, simulation and trials.

One MemoryLog is a cluster; its tails, ranges and appenders share its partitions. Faults are injected explicitly:
`lose_acks` makes the next appends succeed and then raise UnknownOutcome.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import ConsumerRecord, LogRecord, ProducerRecord


class MemoryLog:
    """Topics with the given numbers of partitions; `clock_ms` timestamps records (default: 0)."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._partitions = dict(topics)
        self.records: dict[tuple[str, int], list[ConsumerRecord]] = defaultdict(list)
        self.lose_acks = 0
        self._first_offsets: dict[tuple[str, int], int] = {}
        self.clock_ms = 0
        self._appended = asyncio.Event()

    def put(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        """Append at once and return the base offset."""
        log = self.records[topic, partition]
        base = len(log)
        for index, record in enumerate(records):
            log.append(
                ConsumerRecord(
                    topic, partition, base + index, self.clock_ms, record.key, record.value, tuple(record.headers)
                )
            )
        self.wake()
        return base

    def wake(self) -> None:
        """Make every waiting poll check again."""
        self._appended.set()
        self._appended = asyncio.Event()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Make records below the offset unreadable; `records` still has them, by their offsets."""
        self._first_offsets[topic, partition] = offset

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the first readable offset."""
        return self._first_offsets.get((topic, partition), 0)

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        base = self.put(topic, partition, records)
        await asyncio.sleep(0)
        if self.lose_acks > 0:
            self.lose_acks -= 1
            raise UnknownOutcome(f"append to {topic}/{partition}: the acknowledgement was lost on request")
        return base

    async def partitions(self, topic: str) -> int:
        return self._partitions.get(topic, 0)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def tail(self, topic: str, starts: Mapping[int, int]) -> "MemoryTail":
        return MemoryTail(self, topic, starts)

    async def read(self, topic: str, partition: int, start: int, end: int) -> "MemoryRange":
        return MemoryRange(self.records[topic, partition][max(start, self.first_offset(topic, partition)) : end])

    async def end_offset(self, topic: str, partition: int) -> int:
        return len(self.records[topic, partition])

    async def end_offsets(self, topic: str, partitions: int) -> Mapping[int, int]:
        return {partition: len(self.records[topic, partition]) for partition in range(partitions)}

    async def beginning_offset(self, topic: str, partition: int) -> int:
        return self.first_offset(topic, partition)

    async def boundary_offsets(
        self, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], tuple[int, int]]:
        return {place: (self.first_offset(*place), len(self.records[place])) for place in partitions}

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        records = self.records[topic, partition]
        return next((record.offset for record in records if record.timestamp >= at_ms), len(records))


class MemoryRange:
    """A range in one chunk."""

    def __init__(self, records: Sequence[LogRecord]) -> None:
        self._chunks = [records] if records else []

    async def __aenter__(self) -> "MemoryRange":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: nothing was held."""

    def __aiter__(self) -> "MemoryRange":
        return self

    async def __anext__(self) -> Sequence[LogRecord]:
        if not self._chunks:
            raise StopAsyncIteration
        return self._chunks.pop()


class MemoryTail:
    """LogTail over a MemoryLog."""

    def __init__(self, log: MemoryLog, topic: str, starts: Mapping[int, int]) -> None:
        self.topic = topic
        self._log = log
        self._positions = dict(starts)
        self._paused: set[int] = set()

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
        grown = self._log._appended
        batches = self._read_available(max_records)
        if not batches:
            try:
                async with asyncio.timeout(timeout_s):
                    await grown.wait()
            except TimeoutError:
                return {}
            batches = self._read_available(max_records)
        return batches

    def _read_available(self, max_records: int) -> dict[int, Sequence[LogRecord]]:
        batches: dict[int, Sequence[LogRecord]] = {}
        for partition, place in self._positions.items():
            at = max(place, self._log.first_offset(self.topic, partition))
            records = self._log.records[self.topic, partition][at : at + max_records]
            if records and partition not in self._paused:
                batches[partition] = records
                self._positions[partition] = at + len(records)
        return batches

    def seek(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset
        self._log.wake()

    def pause(self, partitions: Sequence[int]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        self._paused.difference_update(partitions)
        self._log.wake()

    async def end_offsets(self) -> Mapping[int, int]:
        return {p: len(self._log.records[self.topic, p]) for p in self._positions}

    async def beginning_offsets(self) -> Mapping[int, int]:
        return {partition: self._log.first_offset(self.topic, partition) for partition in self._positions}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
