"""Publishes commands: one batch at a time for each partition.

Commands that arrive while a batch is in flight travel in the next one (group commit), so a thousand starts a second are
some dozens of appends. Each partition has its own queue: one that lost its leader does not block the others, and
partitions whose responses arrive together send together again.

An append with unknown outcome is repeated with the same command ids: owners deduplicate. A command that is not in the
log within its time is abandoned, and its sender learns whether it may be in the log nevertheless.

Before: services/application/runs/start.py, services/application/runs/control.py. After: the owner of the partition
reads loom.<family>.commands.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.records import Record
from loomlog.schemas.sticky_partitioner import StickyPartitioner
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_SOON_S
from loomlog.services.core.refusals import Refused

log = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 260
"""Maximum bytes of a record's key, headers and framing, without its value."""
CLOUDEVENTS_SOURCE = b"/loomlog/commands"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Position of a command in the log."""

    partition: int
    offset: int


class _WaitingCommand:
    """A command whose sender is waiting."""

    __slots__ = ("deadline", "done", "outgoing", "sent", "size")

    def __init__(
        self, outgoing: ProducerRecord, size: int, deadline: float, done: "asyncio.Future[LogPosition]"
    ) -> None:
        self.outgoing = outgoing
        self.size = size
        self.deadline = deadline
        self.done = done
        self.sent = False


class _PartitionQueue:
    """The queue of one partition."""

    __slots__ = ("in_flight", "number", "queue")

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[_WaitingCommand] = deque()
        self.in_flight = False


class CommandPublisher:
    """Appends commands. `open` once, then `run` as a task; `publish` from any task."""

    def __init__(
        self,
        appender: LogAppender,
        codec: Codec,
        *,
        topic: str,
        wait_s: float = limits.PUBLISH_WAIT_S,
        retry_s: float = limits.PUBLISH_RETRY_S,
        on_batch: Callable[[int], None] = lambda records: None,
    ) -> None:
        self.topic = topic
        self.batches = 0
        self.records = 0
        self.unknown_outcomes = 0
        self._appender = appender
        self._codec = codec
        self._wait_s = wait_s
        self._retry_s = retry_s
        self._on_batch = on_batch
        self._queues: list[_PartitionQueue] = []
        self._partitioner: StickyPartitioner | None = None
        self._ready = asyncio.Event()
        self._waiting = 0
        self._waiting_bytes = 0

    @property
    def waiting_count(self) -> int:
        """Number of commands that are not in the log yet."""
        return self._waiting

    @property
    def partitions(self) -> int:
        return len(self._queues)

    async def open(self) -> None:
        """Read the number of partitions. Raises Transient when the broker does not answer, or has no such topic."""
        count = await self._appender.partitions(self.topic)
        if not count:
            text = f"there is no topic {self.topic}; run python -m loomlog.redpanda.apply"
            raise Transient(text, kind="unavailable")
        self._queues = [_PartitionQueue(number) for number in range(count)]
        self._partitioner = StickyPartitioner(len(self._queues))

    def choose_partition(self, fresh: str, at_ms: int) -> str:
        """Return a token for a new run, in a partition chosen so that runs which begin together share it."""
        assert self._partitioner is not None, f"{self.topic} is not open"
        return self._partitioner.assign_partition(fresh, at_ms)

    def partition_of(self, key: str) -> int:
        """Return the partition of a key, which is the same in the commands and events topics."""
        assert self._queues, f"{self.topic} is not open or has no partitions"
        return partition_of(key.encode(), len(self._queues))

    async def publish(self, key: str, command_id: str, command: Record, *, traceparent: str = "") -> LogPosition:
        """Return the command's position once every replica has it. Raises
        Refused(log_unavailable) on timeout.
        """
        value = self._codec.encode(command)
        if len(value) > limits.COMMAND_BYTES_MAX:
            raise Refused(
                "payload_too_large", f"the request has {len(value)} bytes, at most {limits.COMMAND_BYTES_MAX} fit"
            )
        lane = self._queues[self.partition_of(key)]
        size = len(value) + RECORD_OVERHEAD_BYTES
        if self._waiting >= limits.PUBLISH_WAITING_MAX or self._waiting_bytes + size > limits.PUBLISH_WAITING_BYTES:
            raise self._unavailable_error(f"{self._waiting} commands wait already", sent=False)
        loop = asyncio.get_running_loop()
        outgoing = ProducerRecord(
            key=key.encode(), value=value, headers=_headers(command_id, command.SCHEMA, traceparent.encode())
        )
        waiting = _WaitingCommand(outgoing, size, loop.time() + self._wait_s, loop.create_future())
        timer = loop.call_at(waiting.deadline, self._expire, lane, waiting)
        self._waiting += 1
        self._waiting_bytes += size
        lane.queue.append(waiting)
        self._ready.set()
        try:
            return await waiting.done
        finally:
            timer.cancel()
            self._waiting -= 1
            self._waiting_bytes -= size

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._ready.wait()
                self._ready.clear()
                for lane in self._queues:
                    if lane.queue and not lane.in_flight and (batch := _take_batch(lane)):
                        lane.in_flight = True
                        group.create_task(self._send_batch(lane, batch))

    async def _send_batch(self, partition_queue: _PartitionQueue, batch: Sequence[_WaitingCommand]) -> None:
        for waiting in batch:
            waiting.sent = True
        try:
            base = await self._appender.append(
                self.topic, partition_queue.number, [waiting.outgoing for waiting in batch]
            )
        except UnknownOutcome as error:
            self.unknown_outcomes += 1
            log.warning("%d commands for partition %d go again: %s", len(batch), partition_queue.number, error)
            # `_take_batch` skips those whose sender has its answer already.
            partition_queue.queue.extendleft(reversed(batch))
            await asyncio.sleep(self._retry_s)
        else:
            self.batches += 1
            self.records += len(batch)
            self._on_batch(len(batch))
            for index, waiting in enumerate(batch):
                if not waiting.done.done():
                    waiting.done.set_result(LogPosition(partition_queue.number, base + index))
        partition_queue.in_flight = False
        if partition_queue.queue:
            self._ready.set()

    def _expire(self, partition_queue: _PartitionQueue, waiting: _WaitingCommand) -> None:
        if not waiting.done.done():
            waiting.done.set_exception(
                self._unavailable_error(f"no acknowledgement in {self._wait_s:g} s", sent=waiting.sent)
            )
        # While the connection is stuck nothing is taken from the queue; it must not grow while the broker is away.
        while partition_queue.queue and partition_queue.queue[0].done.done():
            partition_queue.queue.popleft()

    def _unavailable_error(self, reason: str, *, sent: bool) -> Refused:
        what = (
            "the outcome is unknown: the command may still reach the log. Repeat the request with the same "
            "Idempotency-Key, then it is carried out once"
            if sent
            else "nothing was sent, so repeating the request is safe"
        )
        return Refused(
            "log_unavailable",
            f"the log cannot be written ({reason}); {what}",
            retry_after_s=RETRY_SOON_S,
            details={"outcome": "unknown" if sent else "not_sent"},
        )


def _take_batch(partition_queue: _PartitionQueue) -> list[_WaitingCommand]:
    """Take the next batch of a queue, without commands whose sender has left."""
    batch: list[_WaitingCommand] = []
    size = 0
    while partition_queue.queue:
        waiting = partition_queue.queue[0]
        if waiting.done.done():
            partition_queue.queue.popleft()
            continue
        if batch and size + waiting.size > MAX_BATCH_BYTES:
            break
        batch.append(partition_queue.queue.popleft())
        size += waiting.size
    return batch


def _headers(command_id: str, schema: str, traceparent: bytes) -> tuple[tuple[str, bytes], ...]:
    """Return CloudEvents attributes for tools that do not read Avro, and the trace context for the owner."""
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", command_id.encode()),
        ("ce_type", schema.encode()),
        ("ce_source", CLOUDEVENTS_SOURCE),
    )
    return (*headers, ("traceparent", traceparent)) if traceparent else headers
