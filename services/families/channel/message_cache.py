"""Messages of queues in the memory of a process, and the wake-up of readers that wait for one.

The cache follows the events of the family from the start of the process on (Replicas.on_event), and has the answers to
its own commands before that, so a message that was published a moment ago is delivered without a database. It is
bounded by bytes and forgets what it heard first; rows have every message. Values are as the log has them: ciphertext
when content is encrypted.

Before: services/stream/entities/replicas.py. After: store.py reads, operations.py and streams wait.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.channel_events import (
    LeaseSettled,
    MessagePublished,
    MessagesSurfaced,
)
from loomlog.schemas.generated.values import SurfacedMessage
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.channel.caller import FAMILY_NAME, Queue

BYTES_MAX = 64 * 1024 * 1024
OVERHEAD_BYTES = 600
"""Bytes of a message besides its value, in memory."""
QUEUES_MAX = 50_000
"""Queues whose last event is remembered."""
READ = frozenset({MessagePublished.SCHEMA, MessagesSurfaced.SCHEMA, LeaseSettled.SCHEMA})
"""Events that bring messages; the others are not decoded."""


class CachedMessage(Value, frozen=True, kw_only=True):
    """A message as the log has it."""

    id: str
    value: str
    """JSON text; ciphertext when content is encrypted."""
    value_bytes: int
    """Bytes of the value in plaintext."""
    published_ns: int
    visible_ns: int
    expires_at_ms: int = 0
    """UTC milliseconds; 0: never."""
    partition: int = 0
    offset: int = 0
    """Where the event is that published it."""


class QueueWatch:
    """The wake-up of a reader. A message that comes between `clear` and `wait` is not missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def clear(self) -> None:
        """Forget what has happened so far; read the queue after it."""
        self._event.clear()

    def wake(self) -> None:
        """Wake the reader."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until a message is in one of the queues; return False after `timeout_s`."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class MessageCache:
    """The messages that this process has heard of, at most `bytes_max` of them."""

    def __init__(self, codec: Codec, *, topic: str, bytes_max: int = BYTES_MAX) -> None:
        """`topic` has the events of the family."""
        self._codec = codec
        self.topic = topic
        self._bytes_max = bytes_max
        self._read_ids = codec.schema_ids_of(READ)
        self._messages: OrderedDict[tuple[str, int], CachedMessage] = OrderedDict()
        """By full id of the queue and position; delayed ones by their negative number."""
        self.cached_bytes = 0
        self._last: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Partition and offset of the last event of a queue that brought a message."""
        self._watches: dict[str, set[QueueWatch]] = {}
        self.heard: dict[int, int] = {}
        """Offset of the last event that was read, by partition."""

    # --- following ---------------------------------------------------------------------------------------------------

    def read(self, partition: int, event: RawEvent) -> None:
        """Take an event of the family, in the order of the log."""
        self.heard[partition] = event.offset
        if event.schema_id not in self._read_ids:
            return
        self.add(event.aggregate, self._codec.decode(event.value).record, partition, event.offset)

    def add(self, aggregate: str, event: Any, partition: int, offset: int) -> None:
        """Take an event of a queue, by its full id; the same one again changes nothing."""
        match event:
            case MessagePublished():
                self._keep(aggregate, event.position or -event.number, _message(event, partition, offset))
                if not event.position:
                    return
            case MessagesSurfaced():
                for surfaced in event.messages:
                    self._surface(aggregate, surfaced)
            case LeaseSettled(returned=()):
                return
            case LeaseSettled():
                pass
            case _:
                return
        self._note(aggregate, partition, offset)
        for watch in self._watches.get(aggregate, ()):
            watch.wake()

    def _surface(self, aggregate: str, surfaced: SurfacedMessage) -> None:
        delayed = self._messages.pop((aggregate, -surfaced.number), None)
        if delayed is not None:
            self.cached_bytes -= _size(delayed)
            self._keep(aggregate, surfaced.position, replace(delayed, visible_ns=surfaced.visible_ns))

    def _keep(self, aggregate: str, place: int, message: CachedMessage) -> None:
        replaced = self._messages.pop((aggregate, place), None)
        self._messages[aggregate, place] = message
        self.cached_bytes += _size(message) - (0 if replaced is None else _size(replaced))
        while self.cached_bytes > self._bytes_max:
            self.cached_bytes -= _size(self._messages.popitem(last=False)[1])

    def _note(self, aggregate: str, partition: int, offset: int) -> None:
        self._last[aggregate] = (partition, max(offset, self._last.get(aggregate, (0, -1))[1]))
        self._last.move_to_end(aggregate)
        if len(self._last) > QUEUES_MAX:
            self._last.popitem(last=False)

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, queue: Queue, position: int) -> CachedMessage | None:
        """Return a visible message; None when it is not in the cache."""
        return self._messages.get((full_id(queue), position))

    def position(self, queue: Queue) -> tuple[str, ...]:
        """Return the position token of the last event that brought a message: rows that include it have all of them."""
        last = self._last.get(full_id(queue))
        return () if last is None else (f"{self.topic}/{last[0]}:{last[1]}",)

    @contextmanager
    def watch(self, queues: Collection[Queue]) -> Iterator[QueueWatch]:
        """Wake a reader at each message of the queues until the context is left."""
        watch, names = QueueWatch(), {full_id(queue) for queue in queues}
        for name in names:
            self._watches.setdefault(name, set()).add(watch)
        try:
            yield watch
        finally:
            for name in names:
                waiting = self._watches[name]
                waiting.discard(watch)
                if not waiting:
                    del self._watches[name]

    async def wait(self, queue: Queue, timeout_s: float) -> bool:
        """Wait for the next message of a queue; return False after `timeout_s`."""
        with self.watch([queue]) as watch:
            return await watch.wait(timeout_s)


def _message(event: MessagePublished, partition: int, offset: int) -> CachedMessage:
    return copy_as(
        CachedMessage,
        event,
        id=event.message_id,
        value_bytes=event.value_bytes or len(event.value.encode()),
        partition=partition,
        offset=offset,
    )


def _size(message: CachedMessage) -> int:
    return len(message.value) + OVERHEAD_BYTES


def full_id(queue: Queue) -> str:
    """Return the full id of the aggregate of a queue."""
    return aggregate_id(FAMILY_NAME, queue.tenant, queue.aggregate)
