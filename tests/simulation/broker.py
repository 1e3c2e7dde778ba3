"""A process's way to the log, with all that may happen on it (LogAppender, LogRanges, LogTail of connectors.protocols).

What was sent travels without its sender: a batch lands although the process that sent it is paused, and perhaps after
its death. An answer is a callback of the process, so a sleeping one finds it when it wakes up.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.protocols import ProducerRecord
from tests.simulation.faults import MOST_DELAY_S, Fates
from tests.simulation.log import ENTITIES, TOPICS, Record, SimulatedLog
from tests.simulation.loop import Answer, Process, VirtualLoop

GIVEN_UP_S = 0.3
"""How long a sender waits for an answer that does not come."""
CHUNK_RECORDS = 12
"""Records of a range that are read at once: few, so that a fold is interrupted."""
IDLE_S = 0.2
IDLE_TIMES = 3.0
"""A poll that would wait so long for nothing waits so many times as long. Empty polls were a tenth of what was done,
and only records end what their callers wait for."""
JUNK = ProducerRecord(key=b"junk", value=b"no record of ours")

Strike = Callable[[str, float], None]
"""Crashes or pauses the process: the fate and its amount."""


class Wire:
    """The appender and the ranges of one process."""

    def __init__(self, loop: VirtualLoop, log: SimulatedLog, process: Process, fates: Fates, strike: Strike) -> None:
        self.fates = fates
        self.strike = strike
        self.loop = loop
        self.log = log
        self.process = process
        self._reading = asyncio.Lock()

    # --- LogAppender -------------------------------------------------------------------------------------------------

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        """Appends, or not, or later, and tells about it, or not."""
        fate, amount = self.fates.draw("append")
        there_s, back_s = self.fates.latency_s(), self.fates.latency_s()
        answer = Answer(self.loop)
        match fate:
            case "slow":
                there_s += MOST_DELAY_S * amount
            case "late":
                there_s += 2 * MOST_DELAY_S * amount
            case "crash" | "pause":
                self.strike(fate, amount)
                if fate == "crash" and amount < 0.5:
                    fate = "lost"  # it died before the bytes had left
        if fate != "lost":
            tell = fate not in ("ack lost", "late")
            lands = self._land
            self.loop.call_for(
                self.loop.outside,
                there_s,
                lands,
                topic,
                partition,
                records,
                fate == "gap",
                answer if tell else None,
                back_s,
            )
        if fate in ("lost", "ack lost", "late"):
            self.loop.call_later(GIVEN_UP_S, answer.fail, UnknownOutcome(f"append to {topic}/{partition}: {fate}"))
        base: int = await answer
        return base

    def _land(
        self,
        topic: str,
        partition: int,
        records: Sequence[ProducerRecord],
        gap: bool,
        answer: Answer | None,
        back_s: float,
    ) -> None:
        if gap and topic in (TOPICS.events, ENTITIES.events):
            self.log.append(topic, partition, [JUNK], "intruder")
        base = self.log.append(topic, partition, records, self.process.name)
        if answer is not None:
            self.loop.call_for(self.process, back_s, answer.tell, base)

    async def partitions(self, topic: str) -> int:
        raise AssertionError("nobody asks")

    async def close(self) -> None:
        """Nothing to close."""

    # --- LogRanges ---------------------------------------------------------------------------------------------------

    async def read(self, topic: str, partition: int, start: int, end: int) -> "Range":
        return Range(self, topic, partition, start, end)

    async def end_offset(self, topic: str, partition: int) -> int:
        await self.round_trip(f"end of {topic}/{partition}")
        return len(self.log.records(topic, partition))

    async def end_offsets(self, topic: str, partitions: int) -> Mapping[int, int]:
        return {partition: await self.end_offset(topic, partition) for partition in range(partitions)}

    async def beginning_offset(self, topic: str, partition: int) -> int:
        await self.round_trip(f"beginning of {topic}/{partition}")
        return 0

    async def round_trip(self, what: str) -> None:
        """There and back. Raises Transient when that is its fate."""
        fate, amount = self.fates.draw("read")
        wait_s = 2 * self.fates.latency_s()
        match fate:
            case "slow":
                wait_s += MOST_DELAY_S * amount
            case "crash" | "pause":
                self.strike(fate, amount)
        await asyncio.sleep(wait_s)
        if fate == "unavailable":
            raise Transient(f"{what}: the broker does not answer", kind="unavailable")


class Range:
    """Chunks of a range. Like with the real one, a process has one range open at a time."""

    def __init__(self, wire: Wire, topic: str, partition: int, start: int, end: int) -> None:
        self._wire, self._topic, self._partition, self._at, self._end = wire, topic, partition, start, end

    async def __aenter__(self) -> "Range":
        await self._wire._reading.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wire._reading.release()

    def __aiter__(self) -> "Range":
        return self

    async def __anext__(self) -> Sequence[Record]:
        if self._at >= self._end:
            raise StopAsyncIteration
        await self._wire.round_trip(f"{self._topic}/{self._partition} from {self._at}")
        stop = min(self._end, self._at + CHUNK_RECORDS)
        records = self._wire.log.records(self._topic, self._partition)[self._at : stop]
        assert len(records) == stop - self._at, "a range reaches over the end of the log"
        self._at = stop
        return records


class Tail:
    """A tail of one topic. Late delivery: a slow poll sees what is there only after its delay."""

    def __init__(self, wire: Wire, topic: str, starts: Mapping[int, int]) -> None:
        self.topic = topic
        self._wire = wire
        self._at = dict(starts)
        self._paused: set[int] = set()
        self._waiting: Answer | None = None
        wire.log.grown[topic].append(self._wake)

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[Record]]:
        wire = self._wire
        fate, amount = wire.fates.draw("poll")
        if fate in ("crash", "pause"):
            wire.strike(fate, amount)
        elif fate:
            await asyncio.sleep(MOST_DELAY_S * amount)  # a broker that is away shows as an empty answer
        if self._has_records():
            await asyncio.sleep(wire.fates.latency_s())
        else:
            waiting = self._waiting = Answer(wire.loop)
            wait_s = timeout_s if timeout_s < IDLE_S else timeout_s * IDLE_TIMES
            timer = wire.loop.call_later(wait_s, waiting.tell, None)
            await waiting
            timer.cancel()
            self._waiting = None
        return self._take(max_records)

    def _has_records(self) -> bool:
        records, topic, paused = self._wire.log.records, self.topic, self._paused
        for partition, at in self._at.items():
            if partition not in paused and len(records(topic, partition)) > at:
                return True
        return False

    def _take(self, max_records: int) -> dict[int, Sequence[Record]]:
        recordses: dict[int, Sequence[Record]] = {}
        for partition, at in self._at.items():
            if partition in self._paused:
                continue
            log = self._wire.log.records(self.topic, partition)
            if len(log) > at:
                records = log[at : at + max_records]
                recordses[partition] = records
                self._at[partition] = at + len(records)
        return recordses

    def _wake(self) -> None:
        if self._waiting is not None and self._has_records():
            wire = self._wire
            wire.loop.call_for(wire.process, wire.fates.latency_s(), self._waiting.tell, None)
            self._waiting = None

    def seek(self, partition: int, offset: int) -> None:
        self._at[partition] = offset
        self._wake()

    def pause(self, partitions: Sequence[int]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        self._paused.difference_update(partitions)
        self._wake()

    async def end_offsets(self) -> Mapping[int, int]:
        await self._wire.round_trip(f"ends of {self.topic}")
        return {partition: len(self._wire.log.records(self.topic, partition)) for partition in self._at}

    async def close(self) -> None:
        """Nothing to close."""
