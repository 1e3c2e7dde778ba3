"""Records that cannot be handled go to loom.dead-letter with all that is needed to put them back.

Parking is a queue and one task: whoever parks does not wait, and is told when the letter is in the log. Nothing is
dropped: while the broker is away the letters wait, and because the command is not marked as handled before its letter
is in the log, a process that dies meanwhile leaves it to the next owner.
"""

import asyncio
import logging
from collections.abc import Callable

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, LogRecord, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.services.stream.snapshots.snapshots import batch_records

log = logging.getLogger(__name__)

ORIGINAL_BYTES_MAX = 600_000
"""Bytes of the original (value, then headers, then key) that are kept, so that a letter fits one append; what is larger
stays in its topic, where the letter says it lies."""
MAX_ERROR_CHARACTERS = 4_000
"""Errors sometimes quote what they are about, and that may be large."""
RETRY_S = 1.0
"""Pause after an append whose outcome is unknown; a letter may then be there twice, which its position shows."""


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
        """`kept` gives the value as a letter may hold it; None leaves it in its topic."""
        self._kept = kept
        self.parked = 0
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._service = service
        self._clock_ms = clock_ms
        self._queue: asyncio.Queue[tuple[ProducerRecord, Callable[[], None]]] = asyncio.Queue()

    def park(self, record: LogRecord, *, kind: str, error: str, parked: Callable[[], None] = lambda: None) -> None:
        """Queue a letter; `parked` is called when it is in the log."""
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
        """Brings letters to the log until cancelled."""
        while True:
            waiting = [await self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            done = 0
            for batch in batch_records([letter for letter, _ in waiting]):
                await self._append(batch)
                for _, parked in waiting[done : done + len(batch)]:
                    parked()
                done += len(batch)
            self.parked += done

    async def _append(self, batch: list[ProducerRecord]) -> None:
        while True:
            try:
                await self._appender.append(self._topic, 0, batch)
                return
            except UnknownOutcome as error:
                log.warning("dead letters wait: %s", error)
                await asyncio.sleep(RETRY_S)


def _truncate(record: LogRecord, kept: bytes | None) -> tuple[bytes | None, tuple[Header, ...], bytes | None]:
    """Value, headers and key of the original as far as they fit. A header without a value is kept as an empty one."""
    room = ORIGINAL_BYTES_MAX
    value = kept if len(kept or b"") <= room else None
    room -= len(value or b"")
    headers = tuple(Header(key=name, value=data or b"") for name, data in record.headers)
    size = sum(len(header.key.encode()) + len(header.value) for header in headers)
    headers = headers if size <= room else ()
    room -= size if headers else 0
    return value, headers, record.key if len(record.key or b"") <= room else None
