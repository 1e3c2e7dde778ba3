"""Records that cannot be handled go to loom.dead-letter with all that is needed to replay them.

Parking is a queue and one task: the caller does not wait, and is called back when the dead letter is in the log.
Nothing is dropped: while the broker is unavailable the dead letters wait, and because a command is marked as handled
only after its dead letter is in the log, the next owner handles it if this process dies.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, LogRecord, ProducerRecord
from loomlog.connectors.retries import until_answered
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.services.stream.snapshots.snapshots import batch_records

log = logging.getLogger(__name__)

ORIGINAL_BYTES_MAX = 600_000
"""Bytes of the original (value, then headers, then key) that are kept, so that a dead letter fits one append; a larger
one stays in its topic, at the position the dead letter names.
"""
MAX_ERROR_CHARACTERS = 4_000
"""Errors sometimes quote their input, which may be large."""


class DeadLetters:
    """Writes dead letters of one service."""

    def __init__(
        self,
        codec: Codec,
        appender: LogAppender,
        *,
        topic: str,
        service: str,
        clock_ms: Callable[[], int],
        kept: Callable[[LogRecord], bytes | None] = lambda record: record.value,
    ) -> None:
        """`kept` returns the value that a dead letter may contain; None leaves it in its topic."""
        self._kept = kept
        self.parked = 0
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._service = service
        self._clock_ms = clock_ms
        self._queue: asyncio.Queue[tuple[ProducerRecord, Callable[[], None]]] = asyncio.Queue()

    def park(self, record: LogRecord, *, kind: str, error: str, parked: Callable[[], None] = lambda: None) -> None:
        """Queue a dead letter; `parked` is called when it is in the log."""
        value, headers, key = _truncate(record, self._kept(record))
        letter = DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=key,
            value=value,
            headers=headers,
            timestamp_ms=record.timestamp,
            service=self._service,
            kind=kind,
            error=error[:MAX_ERROR_CHARACTERS].encode(errors="replace").decode(),
            at_ms=self._clock_ms(),
        )
        place = f"{record.topic}/{record.partition}/{record.offset}".encode()
        self._queue.put_nowait((ProducerRecord(key=place, value=self._codec.encode(letter)), parked))

    async def run(self) -> None:
        """Append dead letters until cancelled."""
        while True:
            waiting = [await self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            done = 0
            for batch in batch_records([letter for letter, _ in waiting]):
                append = partial(self._appender.append, self._topic, 0, batch)
                await until_answered(append, "a dead letter", failures=(UnknownOutcome,))
                for _, parked in waiting[done : done + len(batch)]:
                    parked()
                done += len(batch)
            self.parked += done


def _truncate(record: LogRecord, kept: bytes | None) -> tuple[bytes | None, tuple[Header, ...], bytes | None]:
    """Return value, headers and key of the original as far as they fit. A header without a value is kept as an empty
    one.
    """
    room = ORIGINAL_BYTES_MAX
    value = kept if len(kept or b"") <= room else None
    room -= len(value or b"")
    headers = tuple(Header(key=name, value=data or b"") for name, data in record.headers)
    size = sum(len(header.key.encode()) + len(header.value) for header in headers)
    headers = headers if size <= room else ()
    room -= size if headers else 0
    return value, headers, record.key if len(record.key or b"") <= room else None
