"""The pauses of a process: reads loom.control.events whole, then follows it.

Every process that has to obey or to tell pauses keeps one board: a runtime before it claims its first partition, the
command layer before it takes its first request. The topic is small (a record for each pause and each end of one), so
it is read from its beginning; that needs no snapshot and no group.

Before: services/commands/pausing.py appends. After: host.py obeys, when `changed` is called.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from connectors.protocols import LogRanges, LogRecord, LogTail
from schemas.codec import Codec, Undecodable
from schemas.stream_records import PauseSet
from services.core.pauses import PauseTable, WrongPause

log = logging.getLogger(__name__)

PARTITION = 0
"""The topic has one, so that everybody sees one order."""
POLL_S = 1.0


class PauseBoard:
    """What is paused wider than a run, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self.table = PauseTable()
        self.topic = topic
        self.next_offset = 0
        self.changed = changed
        self._codec = codec
        self._grown = asyncio.Event()

    async def catch_up(self, ranges: LogRanges) -> None:
        """Read everything there is now. Raises Transient."""
        first = await ranges.beginning_offset(self.topic, PARTITION)
        end = await ranges.end_offset(self.topic, PARTITION)
        self.next_offset = max(self.next_offset, first)
        if self.next_offset < end:
            async with await ranges.read(self.topic, PARTITION, self.next_offset, end) as chunks:
                async for chunk in chunks:
                    self.feed(chunk)

    async def follow(self, tail: LogTail) -> None:
        """Read on until cancelled; `tail` stands at or before `next_offset`."""
        tail.seek(PARTITION, self.next_offset)
        while True:
            found = await tail.poll(timeout_s=POLL_S)
            self.feed(found.get(PARTITION, ()))

    async def passed(self, offset: int, *, timeout_s: float) -> bool:
        """Whether the record at the offset is in the table, now or within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.next_offset <= offset:
                    self._grown.clear()
                    await self._grown.wait()
        except TimeoutError:
            return False
        return True

    def feed(self, records: Iterable[LogRecord]) -> None:
        """Fold records in offset order; one that nobody can read is left out and said."""
        before = self.table
        for record in records:
            if record.offset < self.next_offset:
                continue
            self.next_offset = record.offset + 1
            try:
                change = self._codec.decode(record.value or b"").record
                if not isinstance(change, PauseSet):
                    raise WrongPause(f"a {type(change).__name__}, expected a PauseSet")
                self.table = self.table.after(change)
            except (Undecodable, WrongPause) as error:
                log.error("%s offset %d is left out: %s", self.topic, record.offset, error)
        self._grown.set()
        if self.table != before:
            self.changed()
