"""The consumer group that proposes ownership of partitions. It reads no records."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError, UnknownMemberIdError, for_code
from aiokafka.protocol.group import LeaveGroupRequest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.assignment import BalancedAssignor
from loomlog.connectors.kafka.clients import start, stop
from loomlog.connectors.kafka.dead_members import DeadMembers
from loomlog.connectors.kafka.options import METADATA_WAIT_S, KafkaOptions
from loomlog.connectors.protocols import MemberAssignment

POLL_S = 0.5
"""How long one poll waits, and how soon is noticed that the process may own partitions or not."""


class KafkaGroup:
    """Membership of a consumer group, only to learn which partitions to own. It reads no records.

    `assigned` changes when a rebalance ends; `changed` is set then. During a rebalance the old assignment remains, so
    an owner continues to serve its partitions. `incarnation` names this process in `members`.
    """

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        *,
        session_timeout_ms: int,
        incarnation: str,
        is_standby: bool = False,
        address: str = "",
        spares: int = 0,
        until_gone: Callable[[str], Awaitable[bool]] | None = None,
        may_own: Callable[[], bool] = lambda: True,
    ) -> None:
        """`address` is the liveness endpoint of this process, `spares` the number of members kept without partitions
        (the same for all members: the leader's counts). With `until_gone`, which holds such an endpoint until its
        process has died, dead members are removed before their session is over. While `may_own` is false the process
        is no member and nothing is assigned to it.
        """
        self.assigned: frozenset[int] = frozenset()
        self.members: Mapping[str, MemberAssignment] = {}
        """Assignments of all members by incarnation; empty before the first rebalance."""
        self.changed = asyncio.Event()
        self._topic = topic
        self._may_own = may_own
        self._is_subscribed = False
        self._assignor = BalancedAssignor(incarnation, is_standby=is_standby, address=address, spares=spares)
        self._consumer = AIOKafkaConsumer(
            **options.client_arguments(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=max(100, session_timeout_ms // 5),
            rebalance_timeout_ms=30_000,
            fetch_max_wait_ms=1_000,
            # One only: aiokafka 0.14 sends a JoinGroup for each strategy, with a list one longer each time. Each of
            # them restarts the rebalance, and two members can restart each other's forever.
            partition_assignment_strategy=[self._assignor],
        )
        self._options = options
        self._dead_members = (
            DeadMembers(incarnation, until_gone=until_gone, remove=self._remove) if until_gone is not None else None
        )

    async def start(self) -> None:
        await start(self._consumer, f"group for {self._topic}", self._options)
        self._join_or_leave()

    def _join_or_leave(self) -> None:
        """Follow `may_own`. A process that leaves gets an empty assignment and releases its partitions."""
        may_own = self._may_own()
        if may_own == self._is_subscribed:
            return
        self._is_subscribed = may_own
        if may_own:
            self._consumer.subscribe([self._topic], listener=_RebalanceListener(self))
            return
        self._consumer.unsubscribe()
        self._set_assignment(frozenset(), {})

    async def stay(self) -> None:
        """Keep the membership alive; runs until cancelled. Paused partitions return no records."""
        while True:
            self._join_or_leave()
            if not self._is_subscribed:
                await asyncio.sleep(POLL_S)
                continue
            try:
                await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=1)
            except KafkaError as error:
                raise Transient(
                    f"group of {self._topic}: {type(error).__name__}: {error}", kind="unavailable"
                ) from error

    def report_held_partitions(self, get_held_partitions: Callable[[], Iterable[int]]) -> None:
        """Call `get_held_partitions` at every rebalance, so that few of the partitions this process holds move."""
        self._assignor.get_held_partitions = get_held_partitions

    def _on_assigned(self, partitions: frozenset[int]) -> None:
        if self._is_subscribed:  # a rebalance may end while the process leaves
            self._set_assignment(partitions, self._assignor.latest_assignments())

    def _set_assignment(self, partitions: frozenset[int], members: Mapping[str, MemberAssignment]) -> None:
        self.assigned, self.members = partitions, members
        if self._dead_members is not None:
            self._dead_members.update(self.members)
        self.changed.set()

    async def _remove(self, member_id: str) -> None:
        # aiokafka has no call that names another member.
        coordinator = self._consumer._coordinator
        response = await coordinator._send_req(LeaveGroupRequest(coordinator.group_id, member_id))
        error = for_code(response.error_code)
        if response.error_code and error is not UnknownMemberIdError:  # unknown: it was removed already
            raise error(f"member {member_id} of the group {coordinator.group_id}")

    async def close(self) -> None:
        """Leave the group, so that others take over at once."""
        if self._dead_members is not None:
            await self._dead_members.close()
        try:
            async with asyncio.timeout(METADATA_WAIT_S):
                await stop(self._consumer)
        except (KafkaError, TimeoutError):
            pass  # the session will expire


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    def __init__(self, group: KafkaGroup) -> None:
        self._group = group

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        """Continue to serve: terms make it safe, and dropping the partitions would repeat every open call."""

    async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        try:
            self._group._consumer.pause(*assigned)
        except IllegalStateError:
            pass  # the next rebalance is already in progress and will call again
        self._group._on_assigned(frozenset(tp.partition for tp in assigned))
