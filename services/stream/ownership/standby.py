"""The warm standby: folds along with partitions of others, and says so at once when their owner dies.

For every partition one of the other processes stands by, the same one in everybody's eyes (standby_of). It reads the
partition's events as any reader does and feeds them to the fold a take-over uses, and it holds the lifeline that the
owner's Claim names. When that breaks for good the host claims, and what is left to do is to append the Claim and to
read the few records since. A wrong guess is safe: it is one more Claim.

Folding along is lazy like the take-over itself: an event costs a peek, what is over is never decoded, and between polls
it rests. What a fold may hold is bounded; one that grew too heavy is thrown away and begun anew at the owner's latest
checkpoint, which it would be compared with by nobody: it is a cache of the log.

Not chosen: deciding what is live event by event (twice the work of the owner, for a take-over that is some milliseconds
shorter); everybody follows everything (the work of all, times all).

Before: assignment.py says which partitions, main.py gives a tail and a reader of its own. After: owner.py takes the
fold.
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
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.snapshots.snapshots import FoldStart, Snapshots

log = logging.getLogger(__name__)

POLL_S = 0.5
POLL_RECORDS_MAX = 500
"""Records fed in one go; a few milliseconds, because owners share this loop."""
IDLE_WAIT_S = 0.1
"""Between polls that found less than they may: ten fetches a second for all partitions together. A take-over reads the
rest by itself, so what was not polled yet costs it nothing but the reading."""
BROKER_PAUSE_S = 1.0
ENDED_KEPT = 5_000
"""Ended aggregates a standby remembers; each costs a take-over some microseconds, and a repeated command of an older
one is looked up in the index."""
KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Events of live aggregates in all folds together; about a million of them."""
PREFETCHED_MAX = 1_000
"""Commands above one that was handled without an event: a take-over would read them all again. The owner's checkpoints
know of it."""
DEAD_OWNERS_MAX = 1_000
"""Dead lives remembered; a Claim of one that died longer ago was read long since."""
REFOLD_EVERY_S = 30.0
"""A fold is not begun anew more often than the owner makes a checkpoint."""


class PausableTail(LogTail, Protocol):
    """A tail whose partitions can be left alone for a while."""

    def pause(self, partitions: list[int]) -> None: ...
    def resume(self, partitions: list[int]) -> None: ...


def choose_standby(partition: int, lives: Iterable[str]) -> str | None:
    """Which of these stands by for the partition: rendezvous hashing, so that one that comes or goes moves only what
    it stands by for. None of nobody."""
    return max(lives, key=lambda life: blake2b(f"{partition}/{life}".encode(), digest_size=8).digest(), default=None)


def partitions_followed_by(life: str, members: Mapping[str, MemberAssignment]) -> frozenset[int]:
    """The partitions for which that member stands by: of those to be owned by others."""
    willing = [name for name, share in members.items() if share.is_standby]
    return frozenset(
        partition
        for owner, share in members.items()
        for partition in share.partitions
        if owner != life and choose_standby(partition, (name for name in willing if name != owner)) == life
    )


class Standby:
    """Follows partitions. `owner_died(partition, life)` is called when the owner of one has died.

    `life` is this process's own name in the group; `until_gone` is
    loomlog.connectors.process.liveness_sockets.wait_for_disconnect. The tail is over all partitions of the events
    topic, all paused; tail and ranges are nobody else's, so that no owner waits for them.
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
        self._snapshots = Snapshots(
            context.family, context.codec, appender=context.appender, ranges=ranges, topic=context.topics.snapshots
        )
        self._until_gone = until_gone
        self._followed: frozenset[int] = frozenset()
        self._folds: dict[int, PartitionFold] = {}
        self._begun: dict[int, float] = {}
        """When each fold was begun last, monotonic."""
        self._ends: dict[int, int] = {}
        """Where the log of each fold ended when it was begun; it is warm from there on."""
        self._held: dict[str, asyncio.Task[None]] = {}
        """By lifeline; one that let go stays, so that it is not held again while its process is still named."""
        self._met: set[str] = set()
        """Of those, the ones that have greeted."""
        self._dead: dict[str, set[int]] = {}
        """Lifelines that broke for good, oldest first, with the partitions for which that was told: once, because a
        life that was taken for dead by mistake must not be claimed against again and again."""
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    @property
    def warm_partitions(self) -> int:
        """Partitions that are folded along, were read to their end, and whose owner's death is or would be noticed."""
        return sum(self._is_warm(number) and self._is_watched(folded) for number, folded in self._folds.items())

    def _is_watched(self, folded: PartitionFold) -> bool:
        return not folded.lifeline or folded.lifeline in self._met or folded.lifeline in self._dead

    def _is_warm(self, number: int) -> bool:
        return self._folds[number].next_offset >= self._ends[number]

    def follow(self, partitions: frozenset[int]) -> None:
        """Stand by for these and no others."""
        for number in self._followed - partitions:
            self._drop(number)
            self._begun.pop(number, None)
        self._followed = partitions
        self._watch_owner()
        self._changed.set()

    def take(self, partition: int) -> PartitionFold | None:
        """What is folded of a partition that is about to be claimed; None when it is not followed."""
        fold = self._folds.get(partition)
        self.follow(self._followed - {partition})
        return fold

    async def run(self) -> None:
        """Until cancelled."""
        is_away = False
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._watch_owner()
            while True:
                try:
                    await self._start_due_folds()
                    found = await self._tail.poll(timeout_s=POLL_S, max_records=POLL_RECORDS_MAX) if self._folds else {}
                except Transient as error:
                    if not is_away:
                        log.warning("the standby of %s waits for the broker: %s", self._context.family.name, error)
                    is_away = True
                    await asyncio.sleep(BROKER_PAUSE_S)
                    continue
                is_away = False
                for number, records in found.items():
                    self._feed(number, records)
                self._report_dead_owners()
                self._drop_ended()
                if not self._followed:
                    self._changed.clear()
                    await self._changed.wait()
                else:
                    is_behind = sum(map(len, found.values())) >= POLL_RECORDS_MAX
                    await asyncio.sleep(0 if is_behind else IDLE_WAIT_S)

    # --- folding along -----------------------------------------------------------------------------------------------

    async def _start_due_folds(self) -> None:
        now = time.monotonic()
        for number in sorted(self._followed - set(self._folds)):
            if number in self._followed and now - self._begun.get(number, -REFOLD_EVERY_S) >= REFOLD_EVERY_S:
                await self._start_fold(number)

    async def _start_fold(self, number: int) -> None:
        """From the owner's latest checkpoint."""
        topic, ranges = self._context.topics.events, self._ranges
        first = await ranges.beginning_offset(topic, number)
        start = await self._snapshots.load(number, first)
        end = await ranges.end_offset(topic, number)
        if start.next_offset > end:
            start = FoldStart(first)  # a checkpoint of another, longer log
        folded = PartitionFold(self._context.family, self._context.codec, start, keep_over=ENDED_KEPT)
        if start.term >= 0:
            async with await ranges.read(topic, number, start.term, start.term + 1) as chunks:
                async for chunk in chunks:
                    folded.note_claim(chunk[0])
        if number not in self._followed:
            return  # meanwhile it was claimed, or somebody else stands by
        self._begun[number] = time.monotonic()
        self._folds[number], self._ends[number] = folded, end
        self._tail.seek(number, start.next_offset)
        self._tail.resume([number])
        self._watch_owner()

    def _feed(self, number: int, records: Sequence[LogRecord]) -> None:
        folded = self._folds.get(number)
        if folded is None or records[0].offset < folded.next_offset:
            return  # polled before it was dropped or begun anew
        if records[0].offset > folded.next_offset:
            name, gone = self._context.family.name, (folded.next_offset, records[0].offset)
            log.warning("%s partition %d: records from %d to %d are gone", name, number, *gone)
            self._drop(number)
            return
        lifeline = folded.lifeline
        folded.feed(records)
        if folded.lifeline != lifeline:
            self._watch_owner()

    def _drop_ended(self) -> None:
        """Drop what has become too heavy; it is begun anew in its time, and until then taken over without a standby."""
        for number in [number for number, folded in self._folds.items() if folded.progress.ahead > PREFETCHED_MAX]:
            if time.monotonic() - self._begun[number] >= REFOLD_EVERY_S:
                self._drop(number)
        while sum(folded.fold.kept_bytes for folded in self._folds.values()) > KEPT_BYTES_MAX:
            self._drop(max(self._folds, key=lambda number: self._folds[number].fold.kept_bytes))

    def _drop(self, number: int) -> None:
        if self._folds.pop(number, None) is not None:
            self._tail.pause([number])
            self._watch_owner()

    # --- lifelines ---------------------------------------------------------------------------------------------------

    def _watch_owner(self) -> None:
        """Hold the lifelines of the owners of what is folded along, and no others."""
        wanted = (
            {folded.lifeline for folded in self._folds.values()}
            - {"", self._context.liveness_address}
            - set(self._dead)
        )
        for lifeline in set(self._held) - wanted:
            task = self._held.pop(lifeline)
            self._met.discard(lifeline)
            if task is not asyncio.current_task():  # which has just told of a death
                task.cancel()
        for lifeline in wanted - set(self._held):
            if self._group is not None:
                self._held[lifeline] = self._group.create_task(self._wait_for(lifeline))

    async def _wait_for(self, lifeline: str) -> None:
        gone = await self._until_gone(lifeline, partial(self._met.add, lifeline))
        self._met.discard(lifeline)
        if not gone:
            return
        log.warning("%s: the process at %s has died", self._context.family.name, lifeline)
        self._dead[lifeline] = set()
        if len(self._dead) > DEAD_OWNERS_MAX:
            del self._dead[next(iter(self._dead))]
        self._report_dead_owners()

    def _report_dead_owners(self) -> None:
        """Of every partition whose owner is dead, once, and when its log was read so far that he is its owner."""
        if not self._dead:
            return
        for number in sorted(self._folds):
            folded = self._folds.get(number)
            told = self._dead.get(folded.lifeline) if folded is not None else None
            if folded is not None and told is not None and number not in told and self._is_warm(number):
                told.add(number)
                self.owner_died(number, folded.lifeline.rpartition("/")[2])
