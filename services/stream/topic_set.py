"""One topic set in a process: its owned partitions and everything that is for this set alone.

A process hosts runs and entities. Both are assigned together: number i means run partition i and entity partition i.
What they share, the membership, the flusher and the dead letters, is in host.py.

Before: host.py. After: services/stream/ownership/.
"""

import asyncio
from collections.abc import Mapping

from loomlog.connectors.protocols import MemberAssignment
from loomlog.services.stream.context import HostContext, HostMetrics
from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.assignment import PartitionAssignment, RequestHandover
from loomlog.services.stream.ownership.drain import DRAIN_S, Drain
from loomlog.services.stream.ownership.inbox import TimerFired
from loomlog.services.stream.ownership.membership import Membership
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.spare import Spare
from loomlog.services.stream.ownership.standby import PausableTail, Standby
from loomlog.services.stream.partition.timers import Timers
from loomlog.services.stream.snapshots.schedule import SnapshotSchedule


class MembershipView:
    """The membership as one topic set follows it (protocol Membership)."""

    def __init__(self, source: Membership) -> None:
        self.changed = asyncio.Event()
        self._source = source

    @property
    def assigned(self) -> frozenset[int]:
        return self._source.assigned

    @property
    def members(self) -> Mapping[str, MemberAssignment]:
        return self._source.members

    async def stay(self) -> None:
        await self._source.stay()


class TopicSetHost:
    """The owners of one topic set. `commands` is a tail over all partitions of its commands topic, all paused.

    Host calls `join` before anything else.
    """

    def __init__(
        self,
        context: HostContext,
        *,
        commands: PausableTail,
        standby: Standby | Spare | None = None,
        request_handover: RequestHandover | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """`request_handover` is loomlog.connectors.process.liveness_sockets.request_handover, for a process that has a
        liveness socket; `drain_s` is how long calls under way may take before their partition is released.
        """
        self.context = context
        self.commands = commands
        self.standby = standby
        self.metrics = HostMetrics()
        self.owners: dict[int, PartitionOwner] = {}
        self.timers = Timers(context.clock_ms, self._fire_timer)
        self._request_handover = request_handover
        self._drain_s = drain_s

    @property
    def name(self) -> str:
        return self.context.family.name

    @property
    def warm_partitions(self) -> int:
        """Number of partitions of other owners that are folded as a standby."""
        return self.standby.warm_partitions if self.standby is not None else 0

    @property
    def watched_partitions(self) -> int:
        """Number of partitions of other owners that this process would claim as a spare."""
        return self.standby.watched_partitions if isinstance(self.standby, Spare) else 0

    @property
    def pending_commands(self) -> int:
        """Decisions waiting for the log, and commands waiting for a lookup."""
        return sum(
            owner.partition.pending_decisions + owner.waiting_commands
            for owner in self.owners.values()
            if owner.partition is not None
        )

    def has_no_calls(self) -> bool:
        return self.context.effect_runner.running_count == 0

    def join(self, membership: Membership, flusher: Flusher) -> None:
        """Take part in a host, which sets `membership.changed`."""
        self.membership = membership
        self.drain = Drain(self.owners, flusher)
        self.checkpoints = SnapshotSchedule(self.context, self.owners, flusher.wake)
        self.ownership = PartitionAssignment(
            self.owners,
            self.context,
            membership=self.membership,
            commands=self.commands,
            flusher=flusher,
            drain=self.drain,
            timers=self.timers,
            metrics=self.metrics,
            standby=self.standby,
            request_handover=self._request_handover,
            drain_s=self._drain_s,
        )

    def _fire_timer(self, partition: int, aggregate: str) -> None:
        owner = self.owners.get(partition)
        if owner is not None:
            owner.deliver(TimerFired(aggregate))

    async def read_commands(self) -> None:
        """Pass one poll of commands to their owners."""
        polled = await self.commands.poll(timeout_s=0.5)
        for number, records in polled.items():
            owner = self.owners.get(number)
            if owner is not None:
                for record in records:
                    owner.deliver(record)
