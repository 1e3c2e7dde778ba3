"""Schedule of partition snapshots, so that a takeover reads a short tail.

A partition snapshot records the end of the log when it was made, so the cut through the aggregates is taken at once and
written when everything decided before it is in the log. Until then the partition continues; if it is lost meanwhile,
nothing is written. A failure costs nothing but a longer takeover, and is retried later.

Before: services/stream/ownership/owner.py has the aggregates. After: snapshots.py writes them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from loomlog.connectors.errors import Transient
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.partition import Partition
from loomlog.services.stream.snapshots.snapshots import ConsistentCut

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_EVENTS = 20_000
"""Keeps the tail of a takeover below half a second (about 100,000 events a second, measured on a prototype)."""
SNAPSHOT_EVERY_S = 30.0
"""Also without many events, so that a quiet partition does not keep an old tail."""
SNAPSHOT_CHECK_EVERY_S = 1.0
REST_CHECK_EVERY_S = 5.0
"""An aggregate rests 5 to 10 s after its snapshot, so that a conversation at typing speed is in memory."""
UNSAVED_IDLE_MAX = 500
"""Aggregates of a partition that wait for a snapshot to rest: with more it is made at once, because what they have in
memory by then is not given back to the system when they rest.
"""


class SnapshotSchedule:
    """Makes partition snapshots for the owners of a process. `wake` is Flusher.wake."""

    def __init__(self, context: HostContext, owners: Mapping[int, PartitionOwner], wake: Callable[[], None]) -> None:
        self.failed: dict[int, str] = {}
        """Why the last attempt of a partition failed; without those that succeeded."""
        self.failures = 0
        self._context = context
        self._owners = owners
        self._wake = wake

    async def run(self) -> None:
        """Run until cancelled."""
        checked_s = time.monotonic()
        while True:
            await asyncio.sleep(SNAPSHOT_CHECK_EVERY_S)
            is_due = time.monotonic() - checked_s >= REST_CHECK_EVERY_S
            if is_due:
                checked_s = time.monotonic()
            for owner in list(self._owners.values()):
                partition = owner.partition
                if partition is None:
                    continue
                if partition.events_since_checkpoint or owner.has_idle:  # 100,000 aggregates are looked at in 5 ms
                    owner.let_idle_rest(is_due=is_due)
                if self._is_due(owner, partition):
                    await self.make(owner)

    def _is_due(self, owner: PartitionOwner, partition: Partition) -> bool:
        """Whether a partition snapshot should be made now."""
        events = partition.events_since_checkpoint
        if events == 0:
            return False
        is_large = events >= SNAPSHOT_EVERY_EVENTS or owner.unsaved_idle >= UNSAVED_IDLE_MAX
        return is_large or time.monotonic() - owner.snapshotted_at_s >= SNAPSHOT_EVERY_S

    async def make(self, owner: PartitionOwner) -> bool:
        """Write a partition snapshot of the owner's present state; False if the partition was lost meanwhile."""
        partition = owner.partition
        handler = owner.handler
        if partition is None or handler is None:
            return False
        cut = ConsistentCut.of(partition.aggregates, handler.resting)
        partition.events_since_checkpoint = 0
        problem = await self._write(owner, partition, cut)
        if not problem:
            self.failed.pop(owner.number, None)
            return True
        # Retry later, also if nothing more happens.
        partition.events_since_checkpoint = max(1, partition.events_since_checkpoint)
        if owner.partition is partition:
            self.failures += 1
            if self.failed.get(owner.number) != problem:
                name, number = self._context.family.name, owner.number
                log.warning("%s partition %d: no partition snapshot can be made: %s", name, number, problem)
            self.failed[owner.number] = problem
        return False

    async def _write(self, owner: PartitionOwner, partition: Partition, cut: ConsistentCut) -> str:
        """Write it; returns why it was not."""
        reached: asyncio.Future[tuple[int, CommandProgress]] = asyncio.get_running_loop().create_future()

        def mark(offset: int) -> None:
            if not reached.done():
                reached.set_result((offset, CommandProgress(partition.progress.low, partition.progress.above)))

        partition.on_durable(mark)
        self._wake()
        while not reached.done():
            await asyncio.wait([reached], timeout=SNAPSHOT_CHECK_EVERY_S)
            if owner.partition is not partition:
                return "the partition was lost"
        next_offset, progress = reached.result()
        owner.snapshotted_at_s = time.monotonic()
        try:
            return await self._context.snapshots.write(
                owner.number,
                term=partition.term,
                next_offset=next_offset,
                progress=progress,
                cut=cut,
                at_ms=self._context.clock_ms(),
                issued_until_ms=owner.issued_until_ms,
            )
        except Transient as error:
            return str(error)
