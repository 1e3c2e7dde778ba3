"""The generic host: the parts that work for one family's partitions in this process, and the tasks that drive them.

All tasks are in one TaskGroup: an unexpected exception in any of them ends the process, and its supervisor restarts it
(no silent death). Each part has one concern and a file of its own: which partitions are ours
(services/stream/ownership/assignment.py), appends (flusher.py), partition snapshots, timers, checks of quiet partitions
(services/stream/ownership/watchdog.py), and planned stops (services/stream/ownership/drain.py). Here they are put
together, and commands are passed to their owners.

Before: services/runtime/run_host.py builds it. After: services/stream/ownership/owner.py takes commands and results.
"""

import asyncio

from loomlog.services.stream.context import HostContext, HostMetrics
from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.assignment import PartitionAssignment, RequestHandover
from loomlog.services.stream.ownership.drain import DRAIN_S, Drain
from loomlog.services.stream.ownership.inbox import CallReturned, TimerFired, WidePausesChanged
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail, Standby
from loomlog.services.stream.ownership.watchdog import watch_in_flight_batch, watch_quiet_partitions
from loomlog.services.stream.partition.timers import Timers
from loomlog.services.stream.snapshots.schedule import SnapshotSchedule

PENDING_COMMANDS_MAX = 20_000
"""Decisions waiting for the log, and commands waiting for a lookup, before further ones are left in their topic; bounds
memory when the broker or the index is slow.
"""
PENDING_CHECK_S = 0.2
"""Interval of the check for room: pending work may also vanish without a flush, with its partition."""


class Host:
    """Owns partitions of one family. `commands` is a tail over all partitions of the commands topic, all paused."""

    def __init__(
        self,
        context: HostContext,
        *,
        membership: Membership,
        commands: PausableTail,
        standby: Standby | Spare | None = None,
        request_handover: RequestHandover | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """`request_handover` is loomlog.connectors.process.liveness_sockets.request_handover, for a process that has a
        liveness socket; `drain_s` is how long calls under way may take before their partition is released.
        """
        self.metrics = HostMetrics()
        self.owners: dict[int, PartitionOwner] = {}
        self.flusher = Flusher(
            context, lambda: list(self.owners.values()), lost=lambda *what: self.ownership.lost(*what)
        )
        self.checkpoints = SnapshotSchedule(context, self.owners, self.flusher.wake)
        self.context = context
        self._membership = membership
        self._commands = commands
        self._standby = standby
        self._timers = Timers(context.clock_ms, self._fire_timer)
        self._drain = Drain(self.owners, self.flusher)
        self.ownership = PartitionAssignment(
            self.owners,
            context,
            membership=membership,
            commands=commands,
            flusher=self.flusher,
            drain=self._drain,
            timers=self._timers,
            metrics=self.metrics,
            standby=standby,
            request_handover=request_handover,
            drain_s=drain_s,
        )

    @property
    def warm_partitions(self) -> int:
        """Number of partitions of other owners that are folded as a standby."""
        return self._standby.warm_partitions if self._standby is not None else 0

    @property
    def watched_partitions(self) -> int:
        """Number of partitions of other owners that this process would claim without having folded them: as a spare."""
        return self._standby.watched_partitions if isinstance(self._standby, Spare) else 0

    async def run(self) -> None:
        """Run until cancelled. Raises any unexpected exception of a task."""
        async with asyncio.TaskGroup() as group:
            self.context.effect_runner.group = group
            group.create_task(self._membership.stay(), name="membership")
            group.create_task(self.ownership.follow(), name="assignment")
            group.create_task(self._read_commands(), name="intake")
            group.create_task(self.flusher.run(), name="flusher")
            group.create_task(self.context.dead_letters.run(), name="dead letters")
            group.create_task(self.checkpoints.run(), name="checkpoints")
            group.create_task(watch_in_flight_batch(self.flusher, self._commands), name="watch")
            group.create_task(
                watch_quiet_partitions(self.context, self.owners, self.ownership.lost), name="look around"
            )
            group.create_task(self._timers.run(), name="alarms")
            if self._standby is not None:
                group.create_task(self._standby.run(), name="standby")

    # --- input -------------------------------------------------------------------------------------------------------

    def result(self, partition: int, aggregate: str, tenant: str, order: object) -> bool:
        """Deliver the result of a call; False if this process does not own its partition."""
        owner = self.owners.get(partition)
        if owner is not None:
            owner.deliver(CallReturned(aggregate, tenant, order))
        return owner is not None

    def fire_due_timers(self) -> None:
        """Fire the timers that are due after the clock was moved."""
        self._timers.fire_due()

    def _fire_timer(self, partition: int, aggregate: str) -> None:
        owner = self.owners.get(partition)
        if owner is not None:
            owner.deliver(TimerFired(aggregate))

    def apply_wide_pauses(self) -> None:
        """Apply a change of pauses wider than an aggregate."""
        for owner in list(self.owners.values()):
            owner.deliver(WidePausesChanged())

    async def drain(self, timeout_s: float) -> bool:
        """Planned stop: accept no commands, start no calls, let those under way finish and be recorded.

        True if all were.
        """
        self.ownership.stop()
        self.flusher.draining = True
        self._commands.pause(list(self.owners))
        return await self._drain.run(timeout_s, lambda: self.context.effect_runner.running_count == 0)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _read_commands(self) -> None:
        while True:
            while self._pending_commands() > PENDING_COMMANDS_MAX:
                self.flusher.drained.clear()
                try:
                    async with asyncio.timeout(PENDING_CHECK_S):
                        await self.flusher.drained.wait()
                except TimeoutError:
                    continue  # look again
            polled = await self._commands.poll(timeout_s=0.5)
            for number, records in polled.items():
                owner = self.owners.get(number)
                if owner is not None:
                    for record in records:
                        owner.deliver(record)

    def _pending_commands(self) -> int:
        return sum(
            owner.partition.pending_decisions + owner.waiting_commands
            for owner in self.owners.values()
            if owner.partition is not None
        )
