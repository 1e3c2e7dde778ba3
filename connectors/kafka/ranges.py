"""Reads one range of one partition at a time over aiokafka's consumer, whose read-ahead suits history."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.clients import start, stop
from loomlog.connectors.kafka.options import FETCH_MAX_WAIT_MS, KafkaOptions
from loomlog.connectors.protocols import LogRecord

NAMED_MAX = 3
"""Partitions named in an error."""


class KafkaRanges:
    """Reads a range of one partition at a time: claims in a gap, a finished run, the tail for a takeover."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        consumer = AIOKafkaConsumer(
            **self._options.client_arguments(),
            enable_auto_commit=False,
            # A position out of range must raise, not jump.
            auto_offset_reset="none",
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        )
        await start(consumer, "range reader", self._options)
        self._consumer = consumer

    async def learn_leaders(self, *topics: str) -> None:
        """Learn the leaders of the partitions of these topics. Raises Transient.

        aiokafka waits 100 ms (its retry back-off) at the first question about a topic; a takeover asks about two.
        """
        for topic in topics:
            await self.end_offset(topic, 0)

    async def read(self, topic: str, partition: int, start: int, end: int) -> "RangeIterator":
        """Records from `start` up to but not including `end`, in chunks: `async with await ranges.read(...) as chunks`.

        Nothing else can be read while the range is open.
        """
        return RangeIterator(self, TopicPartition(topic, partition), start, end)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last record. Raises Transient."""
        return await self._boundary_offset("end_offsets", topic, partition)

    async def end_offsets(self, topic: str, partitions: int) -> Mapping[int, int]:
        """Return the offset after the last record of each of that many partitions. Raises Transient."""
        ends = await self._read_offsets("end_offsets", [TopicPartition(topic, one) for one in range(partitions)])
        return {place.partition: end for place, end in ends.items()}

    async def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the first remaining record. Raises Transient."""
        return await self._boundary_offset("beginning_offsets", topic, partition)

    async def boundary_offsets(
        self, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Return beginning and end offset of many partitions, given as topic and number, in two requests a broker.

        Raises Transient.
        """
        places = [TopicPartition(topic, number) for topic, number in partitions]
        beginnings = await self._read_offsets("beginning_offsets", places)
        ends = await self._read_offsets("end_offsets", places)
        return {(place.topic, place.partition): (beginnings[place], ends[place]) for place in places}

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """Return the offset of the first record at or after a time; the end when all are older. Raises Transient."""
        assert self._consumer is not None
        tp = TopicPartition(topic, partition)
        try:
            offset = (await self._consumer.offsets_for_times({tp: at_ms}))[tp]
        except (KafkaError, OSError) as error:
            raise Transient(
                f"time {at_ms} of {topic}/{partition}: {type(error).__name__}", kind="unavailable"
            ) from error
        return await self.end_offset(topic, partition) if offset is None else int(offset.offset)

    async def _boundary_offset(self, method: str, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        return (await self._read_offsets(method, [place]))[place]

    async def _read_offsets(self, method: str, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        assert self._consumer is not None
        try:
            offsets = await getattr(self._consumer, method)(places)
        except (KafkaError, OSError) as error:
            named = ", ".join(f"{place.topic}/{place.partition}" for place in places[:NAMED_MAX])
            raise Transient(f"{method} of {named}: {type(error).__name__}", kind="unavailable") from error
        return {place: int(offsets[place]) for place in places}

    async def close(self) -> None:
        if self._consumer is not None:
            await stop(self._consumer)
            self._consumer = None


class RangeIterator:
    """Iterates a range in chunks; see KafkaRanges.read."""

    def __init__(self, ranges: KafkaRanges, tp: TopicPartition, start: int, end: int) -> None:
        self._ranges, self._tp, self._position, self._end = ranges, tp, start, end

    async def __aenter__(self) -> "RangeIterator":
        await self._ranges._lock.acquire()
        assert self._ranges._consumer is not None
        if self._position < self._end:
            self._ranges._consumer.assign([self._tp])
            self._ranges._consumer.seek(self._tp, self._position)
        return self

    async def __aexit__(self, *_: object) -> None:
        consumer = self._ranges._consumer
        if consumer is not None and self._tp in consumer.assignment():
            consumer.pause(self._tp)  # otherwise it would continue to fetch
        self._ranges._lock.release()

    def __aiter__(self) -> "RangeIterator":
        return self

    async def __anext__(self) -> Sequence[LogRecord]:
        consumer = self._ranges._consumer
        assert consumer is not None
        while self._position < self._end:
            try:
                batches = await consumer.getmany(self._tp, timeout_ms=200, max_records=5_000)
                records = [r for r in batches.get(self._tp, ()) if r.offset < self._end]
                # The position passes control records too, so that the end is always reached.
                self._position = records[-1].offset + 1 if records else await consumer.position(self._tp)
            except KafkaError as error:
                raise Transient(
                    f"reading {self._tp.topic}/{self._tp.partition} from {self._position}: "
                    f"{type(error).__name__}: {error}",
                    kind="unavailable",
                ) from error
            if records:
                return records
        raise StopAsyncIteration


@asynccontextmanager
async def open_ranges(options: KafkaOptions) -> AsyncIterator[KafkaRanges]:
    """Open a reader of ranges, closed at the end. Raises Transient when the broker does not answer."""
    ranges = KafkaRanges(options)
    await ranges.start()
    try:
        yield ranges
    finally:
        await ranges.close()
