"""Read model of the budget state in one process: the fold of loom.budget.events, from the latest partition snapshot on.

Every runtime and every API process keeps one replica. It has the limits and the usage without a round trip, so a run
without limits costs nothing; and it returns the result of a command to its sender.

The replica may lag. A decision that must be right (may this call be made) is made by the owner of the budget partition;
one that must be fresh (may this run start) first lets the replica catch up (`caught_up`). Whether there is a limit at
all is not read from the log for each run: the starter of a run sends the offset it has read to (`limits_offset`), and a
replica behind that offset catches up first.

A record without an event is skipped, as by the owner of the partition. An event that cannot be folded ends the reading:
the process continues, and every caller that needs a correct budget state receives the offset where it stopped.

Before: the owner of the budget partition appends. After: client.py sends requests, the runtime and the command layer
read.
"""

import asyncio
import logging
from collections.abc import Iterable

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRanges, LogRecord, LogTail
from loomlog.schemas.codec import Codec, Undecodable, digest
from loomlog.schemas.generated.budget_events import BudgetMonthBegan, BudgetSettled, Event, LimitSet
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.services.families.budget.family import AGGREGATE, PARTITION
from loomlog.services.families.budget.state import EXPIRED, BudgetState, evolve, limited
from loomlog.services.stream.family import Topics
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.partition import NO_DIGEST
from loomlog.services.stream.snapshots.snapshots import Snapshots

log = logging.getLogger(__name__)

POLL_S = 1.0
CATCH_UP_S = 5.0
"""Seconds a start waits until this process has read what was in the log when the start arrived."""


class BudgetReplica:
    """The budget state, as far as this process has read."""

    def __init__(self, codec: Codec, topics: Topics, snapshots: Snapshots, ranges: LogRanges) -> None:
        self.books = BudgetState()
        self.next_offset = 0
        self.limits_offset = 0
        """Offset just past the newest limit that was set: a reader at this offset knows every limit this process knows.
        0: none was ever set. Just past the snapshot when the limits come from one, because it does not contain their
        offsets.
        """
        self.broken = ""
        """Where and why reading stopped; empty while the log can be read."""
        self._codec = codec
        self.topic = topics.events
        self._snapshots = snapshots
        self._ranges = ranges
        self._reader = TermReader(codec=codec)
        self._seq = 0
        self._tail = NO_DIGEST
        self._waiting: dict[str, asyncio.Future[tuple[Event, int]]] = {}
        self._grown = asyncio.Event()

    async def open(self) -> None:
        """Read all events that are in the log now. Raises Transient."""
        first = await self._ranges.beginning_offset(self.topic, PARTITION)
        start = await self._snapshots.load(PARTITION, first)
        if start.ignored:
            log.warning("%s: folding from offset %d because %s", self.topic, first, start.ignored)
        base = start.bases.get(AGGREGATE)
        if base is not None:
            self.books, self._seq, self._tail = base.state, base.seq, base.digest
            self.limits_offset = start.next_offset if self.books.limits else 0
        self._reader = TermReader(codec=self._codec, term=start.term, next_offset=start.next_offset)
        self.next_offset = start.next_offset
        end = await self._ranges.end_offset(self.topic, PARTITION)
        if self.next_offset < end:
            async with await self._ranges.read(self.topic, PARTITION, self.next_offset, end) as chunks:
                async for chunk in chunks:
                    self.feed(chunk)
                    await asyncio.sleep(0)  # heartbeats share this event loop

    async def follow(self, tail: LogTail) -> None:
        """Follow the log until cancelled."""
        tail.seek(PARTITION, self.next_offset)
        while True:
            recordses = await tail.poll(timeout_s=POLL_S)
            self.feed(recordses.get(PARTITION, ()))

    def feed(self, records: Iterable[LogRecord]) -> None:
        """Fold records in offset order, up to the first event that cannot be folded."""
        for record in records:
            if record.offset < self.next_offset:
                continue
            if self.broken:
                break
            try:
                event = self._reader.read(record.offset, record.value)
            except Undecodable as error:
                log.error("%s offset %d is left out: %s", self.topic, record.offset, error)
                event = None
            try:
                if event is not None and event.seq > self._seq:
                    self._fold(event)
            except Exception as error:
                self.broken = f"the books cannot be read past {self.topic} offset {record.offset}: {error}"
                log.exception("%s", self.broken)
                break
            self.next_offset = record.offset + 1
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def _fold(self, raw: RawEvent) -> None:
        decoded = self._codec.decode(raw.value)
        envelope, event = decoded.envelope, decoded.record
        if envelope is None or raw.seq != self._seq + 1 or (self._seq and envelope.prev != self._tail):
            raise BrokenHistory(f"expected event {self._seq + 1}, found {raw.seq}")
        self.books = evolve(self.books, event, envelope.at_ms)
        self._seq, self._tail = raw.seq, digest(raw.value)
        if isinstance(event, LimitSet):
            self.limits_offset = raw.offset + 1
        waiting = self._waiting.get(envelope.cause_id)
        if waiting is not None and not waiting.done() and _answers(event):
            waiting.set_result((event, raw.offset))

    # --- queries -----------------------------------------------------------------------------------------------------

    def applies(self, tenant: str, user_id: str) -> bool:
        """Whether any limit applies to a run of that user. The only check for a run without limits."""
        return bool(limited(self.books, tenant, user_id))

    def reply_to(self, command_id: str) -> "asyncio.Future[tuple[Event, int]]":
        """Return a future of the event that answers a command, and its offset. Release it with `forget`."""
        future = self._waiting[command_id] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, command_id: str) -> None:
        self._waiting.pop(command_id, None)

    async def wait_for(self) -> None:
        """Wait until more records are read."""
        await self._grown.wait()

    async def caught_up(self) -> None:
        """Wait until everything that is in the log now is read. Raises Transient on timeout."""
        end = await self._ranges.end_offset(self.topic, PARTITION)
        if not await self.read_to(end, timeout_s=CATCH_UP_S):
            text = self.broken or f"the books are read to {self.next_offset}, {end} is needed"
            raise Transient(text, kind="unavailable")

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until the record at the offset is read, at most `timeout_s`; returns the number of records that are
        missing, 0 when it is. `partition` is always PARTITION.
        """
        await self.read_to(offset + 1, timeout_s=timeout_s)
        return max(0, offset + 1 - self.next_offset)

    async def read_to(self, next_offset: int, *, timeout_s: float) -> bool:
        """Whether everything below the offset is read, now or before the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.next_offset < next_offset:
                    if self.broken:
                        return False
                    await self._grown.wait()
        except TimeoutError:
            return False
        return True


def _answers(event: Event) -> bool:
    """Whether the event answers a command: not those that a decision puts first for the time that has passed."""
    return not isinstance(event, BudgetMonthBegan) and not (isinstance(event, BudgetSettled) and event.kind == EXPIRED)
