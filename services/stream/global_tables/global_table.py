"""A global table: one small topic, folded as far as this process has read it.

The topic has one partition, so that all processes read one order, and is read from its beginning: no snapshot and no
group is needed. A process reads it whole before it serves, and then follows it. What a table holds is given by its
`TableFold`: providers.py, clients.py and services/stream/encryption/subject_keys.py have one each.

Before: a process appends a record. After: readers of the table, and `changed`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from loomlog.connectors.protocols import LogRanges, LogRecord, LogTail
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.records import Record

log = logging.getLogger(__name__)

PARTITION = 0
"""The only partition of the topic."""
POLL_S = 1.0

State = TypeVar("State")
Accepted = TypeVar("Accepted", bound=Record | None)


class RecordOrigin(NamedTuple):
    """Where and when a record was read."""

    offset: int
    key: str
    is_new: bool
    """It arrived while the table was followed, so it was appended just now; false for what was read at the start."""


@dataclass(frozen=True, kw_only=True)
class TableFold(Generic[State, Accepted]):
    """How the records of a topic become a state. `apply` is given None for a record without a value, if accepted; it
    raises ValueError for a record that is to be left out.
    """

    initial: State
    apply: Callable[[State, Accepted, RecordOrigin], State]
    accepts: tuple[type[Accepted], ...]


class GlobalTable(Generic[State]):
    """See the module. `changed` is called after records that changed the table."""

    def __init__(self, codec: Codec, topic: str, fold: TableFold[State, Any]) -> None:
        self.topic = topic
        self.table = fold.initial
        self.next_offset = 0
        self.changed: Callable[[], None] = lambda: None
        self._codec = codec
        self._fold = fold
        self._is_followed = False
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
        """Follow the topic until cancelled; `tail` starts at or before `next_offset`."""
        self._is_followed = True
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

    def apply_locally(self, record: Record) -> None:
        """Apply a record of this process before it is read back. Raises ValueError.

        For folds in which a repeated record changes nothing: the order of the log decides, because every such record is
        read from the log again.
        """
        self._apply(record, RecordOrigin(self.next_offset, "", is_new=True))

    def feed(self, records: Iterable[LogRecord]) -> None:
        """Fold records in offset order; one that cannot be decoded or is invalid is skipped and logged."""
        before = self.table
        for record in records:
            if record.offset < self.next_offset:
                continue
            self.next_offset = record.offset + 1
            key = (record.key or b"").decode(errors="replace")
            try:
                decoded = None if record.value is None else self._codec.decode(record.value).record
                self._apply(decoded, RecordOrigin(record.offset, key, is_new=self._is_followed))
            except (Undecodable, ValueError) as error:
                log.error("%s offset %d is left out: %s", self.topic, record.offset, error)
        self._grown.set()
        if self.table != before:
            self.changed()

    def _apply(self, record: Record | None, origin: RecordOrigin) -> None:
        if not isinstance(record, self._fold.accepts):
            expected = ", ".join(accepted.__name__ for accepted in self._fold.accepts)
            raise ValueError(f"a {type(record).__name__}, expected one of {expected}")
        self.table = self._fold.apply(self.table, record, origin)


class GlobalTables:
    """The global tables of a process. `open_tail` opens a tail of a topic; it is closed with `stack`."""

    def __init__(
        self,
        stack: AsyncExitStack,
        ranges: LogRanges,
        open_tail: Callable[[str, Mapping[int, int]], Awaitable[LogTail]],
    ) -> None:
        self.followers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        """What keeps each table up to date, until cancelled, by topic."""
        self._stack = stack
        self._ranges = ranges
        self._open_tail = open_tail

    async def open(self, table: GlobalTable[Any]) -> None:
        """Read a table whole; it can be followed from there on. Raises Transient; then it may be repeated."""
        await table.catch_up(self._ranges)
        tail = await self._open_tail(table.topic, {PARTITION: table.next_offset})
        self._stack.push_async_callback(tail.close)
        self.followers[table.topic] = partial(table.follow, tail)
