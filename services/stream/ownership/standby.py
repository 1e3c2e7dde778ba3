"""The warm standby: folds partitions of other owners, and reports the death of an owner at once.

For every partition one other process is the standby, the same in the view of all processes (choose_standby). It reads
the partition's events like any reader and feeds them to the fold a takeover uses, and it keeps a connection to the
liveness socket that the owner's Claim names. When that breaks for good the host claims, and only has to append the
Claim and read the few records since. A false alarm is safe: it is one more Claim.

Folding is as lazy as in a takeover: an event costs a peek, ended aggregates are never decoded, and the standby rests
between polls. The memory of folds is bounded; one that grew too large is discarded and started again from the owner's
latest partition snapshot: it is a cache of the log.

Not chosen: deciding event by event what is live (twice the work of the owner, for a takeover that is some milliseconds
shorter); every process follows every partition (the work of all, times all).

Before: assignment.py names the partitions, run_host.py gives a tail and a reader. After: owner.py takes the fold.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Protocol

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRanges, LogRecord, LogTail, MemberAssignment
from loomlog.connectors.retries import until_answered
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.snapshots.snapshots import FoldStart

log = logging.getLogger(__name__)

POLL_S = 0.5
POLL_RECORDS_MAX = 500
"""Records fed at once; a few milliseconds, because owners share this event loop."""
IDLE_WAIT_S = 0.1
"""Rest between polls that returned less than they may: ten fetches a second for all partitions together. A takeover
reads the rest itself.
"""
ENDED_KEPT = 5_000
"""Ended aggregates a standby remembers; each costs a takeover some microseconds, and a repeated command of an older one
is looked up in the index.
"""
KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of events of live aggregates in all folds together; about a million events."""
PREFETCHED_MAX = 1_000
"""Commands above the low-water mark that were handled without an event: a takeover would read them all again. The
owner's partition snapshots contain them.
"""
DEAD_OWNERS_MAX = 1_000
"""Incarnations of dead owners remembered; a Claim of one that died longer ago was read long since."""
REFOLD_EVERY_S = 30.0
"""A fold is not started again more often than the owner makes a partition snapshot."""


class PausableTail(LogTail, Protocol):
    """A tail whose partitions can be paused."""

    def pause(self, partitions: list[int]) -> None: ...
    def resume(self, partitions: list[int]) -> None: ...


def choose_standby(subject: int | str, lives: Iterable[str]) -> str | None:
    """Return the standby of a partition (or of an owner): rendezvous hashing, so that a process that joins or
    leaves moves only its own share. None without processes.
    """
    return max(lives, key=lambda life: blake2b(f"{subject}/{life}".encode(), digest_size=8).digest(), default=None)


def partitions_followed_by(life: str, members: Mapping[str, MemberAssignment]) -> frozenset[int]:
    """Return the partitions of other owners for which that member is the standby."""
    willing = [name for name, share in members.items() if share.is_standby]
    return frozenset(
        partition
        for owner, share in members.items()
        for partition in share.partitions
        if owner != life and choose_standby(partition, (name for name in willing if name != owner)) == life
    )


class Standby:
    """Follows partitions. `owner_died(partition, incarnation)` is called when the owner of one has died.

    `life` is this process's own incarnation in the group; `until_gone` is
    loomlog.connectors.process.liveness_sockets.wait_for_disconnect. The tail is over all partitions of the events
    topic, all paused; tail and ranges are used by the standby alone, so that no owner waits for them.
    """

    def __init__(
        self,
        context: HostContext,
        *,
        life: str,
        tail: PausableTail,
        ranges: LogRanges,
        until_gone: Callable[[str, Callable[[], None]], Awaitable[bool]],
    ) -> None:
        self.life = life
        self.owner_died: Callable[[int, str], None] = lambda partition, life: None
        self._context = context
        self._tail = tail
        self._ranges = ranges
        self._snapshots = context.snapshots.read_through(ranges)
        self._until_gone = until_gone
        self._followed: frozenset[int] = frozenset()
        self._folds: dict[int, PartitionFold] = {}
        self._begun: dict[int, float] = {}
        """Time of the last start of each fold, monotonic."""
        self._ends: dict[int, int] = {}
        """End of the log of each fold at its start; the fold is warm from there on."""
        self._held: dict[str, asyncio.Task[None]] = {}
        """By liveness address; a closed one stays, so that it is not opened again while its process is still named."""
        self._met: set[str] = set()
        """Addresses that have greeted."""
        self._dead: dict[str, set[int]] = {}
        """Addresses that broke for good, oldest first, with the partitions for which that was reported: once, because
        an owner that was declared dead by mistake must not be claimed against again and again.
        """
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    @property
    def warm_partitions(self) -> int:
        """Number of partitions that are folded, were read to their end, and whose owner's death is
        or would be noticed.
        """
        return sum(self._is_warm(number) and self._is_watched(folded) for number, folded in self._folds.items())

    def _is_watched(self, folded: PartitionFold) -> bool:
        return not folded.lifeline or folded.lifeline in self._met or folded.lifeline in self._dead

    def _is_warm(self, number: int) -> bool:
        return self._folds[number].next_offset >= self._ends[number]

    def update(self, members: Mapping[str, MemberAssignment], owned: frozenset[int]) -> None:
        """Follow what falls to this process by the latest assignments; `owned` is what it owns itself."""
        self.follow(partitions_followed_by(self.life, members) - owned)

    def follow(self, partitions: frozenset[int]) -> None:
        """Follow these partitions and no others."""
        for number in self._followed - partitions:
            self._drop(number)
            self._begun.pop(number, None)
        self._followed = partitions
        self._watch_owner()
        self._changed.set()

    def take(self, partition: int) -> PartitionFold | None:
        """Return the fold of a partition that is about to be claimed; None if it is not followed."""
        fold = self._folds.get(partition)
        self.follow(self._followed - {partition})
        return fold

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._watch_owner()
            waits = f"the standby of {self._context.family.name}"
            while True:
                polled = await until_answered(self._poll, waits)
                for number, records in polled.items():
                    self._feed(number, records)
                await self._load_woken()
                self._report_dead_owners()
                self._drop_ended()
                if not self._followed:
                    self._changed.clear()
                    await self._changed.wait()
                else:
                    is_behind = sum(map(len, polled.values())) >= POLL_RECORDS_MAX
                    await asyncio.sleep(0 if is_behind else IDLE_WAIT_S)

    async def _poll(self) -> Mapping[int, Sequence[LogRecord]]:
        await self._start_due_folds()
        return await self._tail.poll(timeout_s=POLL_S, max_records=POLL_RECORDS_MAX) if self._folds else {}

    # --- folding -----------------------------------------------------------------------------------------------------

    async def _start_due_folds(self) -> None:
        now = time.monotonic()
        for number in sorted(self._followed - set(self._folds)):
            if number in self._followed and now - self._begun.get(number, -REFOLD_EVERY_S) >= REFOLD_EVERY_S:
                await self._start_fold(number)

    async def _start_fold(self, number: int) -> None:
        """Start a fold from the owner's latest partition snapshot."""
        topic, ranges = self._context.topics.events, self._ranges
        first = await ranges.beginning_offset(topic, number)
        start = await self._snapshots.load(number, first)
        end = await ranges.end_offset(topic, number)
        if start.next_offset > end:
            start = FoldStart(first)  # a partition snapshot of another, longer log
        folded = PartitionFold(self._context.family, self._context.codec, start, keep_over=ENDED_KEPT)
        if start.term >= 0:
            async with await ranges.read(topic, number, start.term, start.term + 1) as chunks:
                async for chunk in chunks:
                    folded.note_claim(chunk[0])
        if number not in self._followed:
            return  # claimed meanwhile, or another process is the standby
        self._begun[number] = time.monotonic()
        self._folds[number], self._ends[number] = folded, end
        self._tail.seek(number, start.next_offset)
        self._tail.resume([number])
        self._watch_owner()

    def _feed(self, number: int, records: Sequence[LogRecord]) -> None:
        folded = self._folds.get(number)
        if folded is None or records[0].offset < folded.next_offset:
            return  # polled before it was dropped or started again
        if records[0].offset > folded.next_offset:
            name, gone = self._context.family.name, (folded.next_offset, records[0].offset)
            log.warning("%s partition %d: records from %d to %d are gone", name, number, *gone)
            self._drop(number)
            return
        address = folded.lifeline
        folded.feed(records)
        if folded.lifeline != address:
            self._watch_owner()

    async def _load_woken(self) -> None:
        """Load the states of aggregates that no longer rest; a takeover reads what cannot be read now."""
        for number, folded in list(self._folds.items()):
            try:
                await folded.fold.load_woken(partial(self._snapshots.read_state, number))
            except Transient as error:
                log.debug("partition %d: states of aggregates that rested: %s", number, error)

    def _drop_ended(self) -> None:
        """Drop folds that have become too large; they are started again later, and until then taken over without a
        standby.
        """
        for number in [number for number, folded in self._folds.items() if folded.progress.ahead > PREFETCHED_MAX]:
            if time.monotonic() - self._begun[number] >= REFOLD_EVERY_S:
                self._drop(number)
        while sum(folded.fold.kept_bytes for folded in self._folds.values()) > KEPT_BYTES_MAX:
            self._drop(max(self._folds, key=lambda number: self._folds[number].fold.kept_bytes))

    def _drop(self, number: int) -> None:
        if self._folds.pop(number, None) is not None:
            self._tail.pause([number])
            self._watch_owner()

    # --- liveness ----------------------------------------------------------------------------------------------------

    def _watch_owner(self) -> None:
        """Keep connections to the owners of the followed partitions, and no others."""
        current = (
            {folded.lifeline for folded in self._folds.values()}
            - {"", self._context.liveness_address}
            - set(self._dead)
        )
        for address in set(self._held) - current:
            task = self._held.pop(address)
            self._met.discard(address)
            if task is not asyncio.current_task():  # which has just reported a death
                task.cancel()
        for address in current - set(self._held):
            if self._group is not None:
                self._held[address] = self._group.create_task(self._wait_for(address))

    async def _wait_for(self, address: str) -> None:
        gone = await self._until_gone(address, partial(self._met.add, address))
        self._met.discard(address)
        if not gone:
            return
        log.warning("%s: the process at %s has died", self._context.family.name, address)
        self._dead[address] = set()
        if len(self._dead) > DEAD_OWNERS_MAX:
            del self._dead[next(iter(self._dead))]
        self._report_dead_owners()

    def _report_dead_owners(self) -> None:
        """Report the death of the owner of every partition once, when its log was read far enough to know that it is
        the owner.
        """
        if not self._dead:
            return
        for number in sorted(self._folds):
            folded = self._folds.get(number)
            reported = self._dead.get(folded.lifeline) if folded is not None else None
            if folded is not None and reported is not None and number not in reported and self._is_warm(number):
                reported.add(number)
                self.owner_died(number, folded.lifeline.rpartition("/")[2])
