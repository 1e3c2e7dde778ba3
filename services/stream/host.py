"""The generic host: the topic sets that work in this process, and the tasks that drive them.

All tasks are in one TaskGroup: an unexpected exception in any of them ends the process, and its supervisor restarts it
(no silent death). Each part has one concern and a file of its own: which partitions are ours
(services/stream/ownership/assignment.py), appends (flusher.py, one for all topic sets, so that what is ready together
leaves in one request), partition snapshots, timers, checks of quiet partitions (services/stream/ownership/watchdog.py),
and planned stops (services/stream/ownership/drain.py). Here they are put together, and commands are passed to their
owners.

Before: services/runtime/run_host.py builds it. After: services/stream/ownership/owner.py takes commands and results.
"""

import asyncio
from itertools import chain

from loomlog.services.stream.context import HostContext, HostMetrics
from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.assignment import PartitionAssignment
from loomlog.services.stream.ownership.inbox import Asked, CallReturned, WidePausesChanged
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.watchdog import watch_in_flight_batch, watch_quiet_partitions
from loomlog.services.stream.snapshots.schedule import SnapshotSchedule
from loomlog.services.stream.topic_set import MembershipView, TopicSetHost

PENDING_COMMANDS_MAX = 20_000
"""Decisions waiting for the log, and commands waiting for a lookup, before further ones are left in their topic; bounds
memory when the broker or the index is slow.
"""
PENDING_CHECK_S = 0.2
"""Interval of the check for room: pending work may also vanish without a flush, with its partition."""


class Host:
    """Owns partitions of topic sets that are assigned together. The first set is that of runs, or the only one."""

    def __init__(self, *topic_sets: TopicSetHost, membership: Membership) -> None:
        self.topic_sets = topic_sets
        self._membership = membership
        self._primary = topic_sets[0]
        self.flusher = Flusher(self._all_owners, lost=self._lost)
        for topic_set in topic_sets:
            topic_set.join(membership if len(topic_sets) == 1 else MembershipView(membership), self.flusher)

    @property
    def context(self) -> HostContext:
        return self._primary.context

    @property
    def owners(self) -> dict[int, PartitionOwner]:
        """Owners of the first topic set, by partition."""
        return self._primary.owners

    @property
    def metrics(self) -> HostMetrics:
        return self._primary.metrics

    @property
    def checkpoints(self) -> SnapshotSchedule:
        return self._primary.checkpoints

    @property
    def ownership(self) -> PartitionAssignment:
        return self._primary.ownership

    @property
    def warm_partitions(self) -> int:
        """Number of partitions of other owners that are folded as a standby."""
        return self._primary.warm_partitions

    @property
    def watched_partitions(self) -> int:
        """Number of partitions of other owners that this process would claim without having folded them: as a spare."""
        return self._primary.watched_partitions

    def _all_owners(self) -> list[PartitionOwner]:
        return list(chain.from_iterable(topic_set.owners.values() for topic_set in self.topic_sets))

    def _lost(self, owner: PartitionOwner, reason: str) -> None:
        topic_set = next(one for one in self.topic_sets if one.context is owner.context)
        topic_set.ownership.lost(owner, reason)

    async def run(self) -> None:
        """Run until cancelled. Raises any unexpected exception of a task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._membership.stay(), name="membership")
            if len(self.topic_sets) > 1:
                group.create_task(self._follow_membership(), name="assignment")
            group.create_task(self.flusher.run(), name="flusher")
            group.create_task(watch_in_flight_batch(self.flusher, self._primary.commands), name="watch")
            for letters in {id(one.context.dead_letters): one.context.dead_letters for one in self.topic_sets}.values():
                group.create_task(letters.run(), name="dead letters")
            for topic_set in self.topic_sets:
                topic_set.context.effect_runner.group = group
                self._start_tasks(topic_set, group)

    def _start_tasks(self, topic_set: TopicSetHost, group: asyncio.TaskGroup) -> None:
        name, ownership = topic_set.name, topic_set.ownership
        group.create_task(ownership.follow(), name=f"assignment of {name}")
        group.create_task(self._read_commands(topic_set), name=f"commands of {name}")
        group.create_task(topic_set.checkpoints.run(), name=f"checkpoints of {name}")
        group.create_task(
            watch_quiet_partitions(topic_set.context, topic_set.owners, ownership.lost), name=f"quiet {name} partitions"
        )
        group.create_task(topic_set.timers.run(), name=f"timers of {name}")
        if topic_set.standby is not None:
            group.create_task(topic_set.standby.run(), name=f"standby of {name}")

    async def _follow_membership(self) -> None:
        while True:
            await self._membership.changed.wait()
            self._membership.changed.clear()
            for topic_set in self.topic_sets:
                topic_set.membership.changed.set()

    # --- input -------------------------------------------------------------------------------------------------------

    def result(self, partition: int, aggregate: str, tenant: str, order: object) -> bool:
        """Deliver the result of a call; False if this process does not own its partition."""
        owner = self.owners.get(partition)
        if owner is not None:
            owner.deliver(CallReturned(aggregate, tenant, order))
        return owner is not None

    def ask(self, topic_set: str, partition: int, asked: Asked) -> bool:
        """Hand over a command in memory; False if this process does not own its partition now."""
        hosted = next((one for one in self.topic_sets if one.name == topic_set), None)
        owner = None if hosted is None else hosted.owners.get(partition)
        if owner is None or owner.partition is None:
            return False
        owner.deliver(asked)
        return True

    def fire_due_timers(self) -> None:
        """Fire the timers that are due after the clock was moved."""
        for topic_set in self.topic_sets:
            topic_set.timers.fire_due()

    def apply_wide_pauses(self) -> None:
        """Apply a change of pauses wider than an aggregate."""
        for owner in list(self.owners.values()):
            owner.deliver(WidePausesChanged())

    async def handover_requested(self, number: int) -> None:
        """Handle the request of another process for a number: returns when its partitions are released, or at once if
        the group does not assign it elsewhere. Runs first: their calls may still write to entities.
        """
        for topic_set in self.topic_sets:
            await topic_set.ownership.handover_requested(number)

    async def drain(self, timeout_s: float) -> bool:
        """Planned stop: accept no commands, start no calls, let those under way finish and be recorded.

        True if all were.
        """
        for topic_set in self.topic_sets:
            topic_set.ownership.stop()
            topic_set.commands.pause(list(topic_set.owners))
        self.flusher.draining = True
        all_settled = True
        for topic_set in self.topic_sets:  # runs first: their calls may still write to entities
            all_settled &= await topic_set.drain.run(timeout_s, topic_set.has_no_calls)
        return all_settled

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _read_commands(self, topic_set: TopicSetHost) -> None:
        while True:
            while sum(one.pending_commands for one in self.topic_sets) > PENDING_COMMANDS_MAX:
                self.flusher.drained.clear()
                try:
                    async with asyncio.timeout(PENDING_CHECK_S):
                        await self.flusher.drained.wait()
                except TimeoutError:
                    continue  # look again
            await topic_set.read_commands()
