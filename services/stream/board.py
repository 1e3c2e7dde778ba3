"""A small topic with one partition as a table of this process: read whole, then followed.

For what every process has to know before it begins and that changes rarely (pauses, hooks): no snapshot, no group, no
cursor. What a record does to the table is said by whoever builds on this.

Before: services/commands appends. After: pauses.py, hooks.py.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar

from connectors.protocols import LogRanges, LogRecord, LogTail
from schemas.codec import Codec, Undecodable

log = logging.getLogger(__name__)

PARTITION = 0
"""The topic has one, so that everybody sees one order."""
POLL_S = 1.0


class WrongRecord(Exception):
    """A record that does not belong in the topic, or contradicts itself."""


class Foldable(Protocol):
    """A table; equal ones say the same."""

    def after(self, change: Any) -> Self: ...


Folded = TypeVar("Folded", bound=Foldable)


class Board(Generic[Folded]):
    """What a topic says as far as this process has read it. `kinds` are its records; a table refuses by `refusals`."""

    def __init__(
        self,
        codec: Codec,
        topic: str,
        *,
        table: Folded,
        kinds: tuple[type[Any], ...],
        refusals: tuple[type[Exception], ...],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.table = table
        self.topic = topic
        self.next_offset = 0
        self.changed = changed
        self._kinds = kinds
        self._refusals: tuple[type[Exception], ...] = (Undecodable, WrongRecord, *refusals)
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
                if not isinstance(change, self._kinds):
                    raise WrongRecord(f"a {type(change).__name__} does not belong here")
                self.table = self.table.after(change)
            except self._refusals as error:
                log.error("%s offset %d is left out: %s", self.topic, record.offset, error)
        self._grown.set()
        if self.table != before:
            self.changed()
