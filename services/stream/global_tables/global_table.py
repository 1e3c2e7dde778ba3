"""A global table: one small topic, folded as far as this process has read it.

The topic has one partition, so that all processes read one order, and is read from its beginning: no snapshot and no
group is needed. Each subclass folds it into something of its own (pauses.py, providers.py).

Before: a process appends a record. After: readers of the table, and `changed`.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable

from loomlog.connectors.protocols import LogRanges, LogRecord, LogTail
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.records import Record

log = logging.getLogger(__name__)

PARTITION = 0
POLL_S = 1.0


class UnknownRecord(Exception):
    """A record that does not belong to this table; the text names what was expected."""


class GlobalTable:
    """See the module. Subclasses implement the fold."""

    def __init__(self, codec: Codec, topic: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self.topic = topic
        self.next_offset = 0
        self.changed = changed
        self._codec = codec
        self._grown = asyncio.Event()

    @abstractmethod
    def apply(self, record: Record) -> bool:
        """Fold one record; whether anything has changed. Raises UnknownRecord."""

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
        """Follow the topic until cancelled; `tail` starts at or before `next_offset`."""
        tail.seek(PARTITION, self.next_offset)
        while True:
            recordses = await tail.poll(timeout_s=POLL_S)
            self.feed(recordses.get(PARTITION, ()))

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until the record at the offset has been folded, at most `timeout_s`; returns the number of records that
        are missing, 0 when it has been. `partition` is always PARTITION.
        """
        await self.wait_for(lambda: self.next_offset > offset, timeout_s=timeout_s)
        return max(0, offset + 1 - self.next_offset)

    async def wait_for(self, true: Callable[[], bool], *, timeout_s: float) -> bool:
        """Whether the condition is true, now or after a record that is read within the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while not true():
                    self._grown.clear()
                    await self._grown.wait()
        except TimeoutError:
            return False
        return True

    def feed(self, records: Iterable[LogRecord]) -> None:
        """Fold records in offset order; one that cannot be decoded is skipped and logged."""
        is_different = False
        for record in records:
            if record.offset < self.next_offset:
                continue
            self.next_offset = record.offset + 1
            try:
                is_different |= self.apply(self._codec.decode(record.value or b"").record)
            except (Undecodable, UnknownRecord) as error:
                log.error("%s offset %d is left out: %s", self.topic, record.offset, error)
        self._grown.set()
        if is_different:
            self.changed()
