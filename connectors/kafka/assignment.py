"""Assigns partitions to the members of the group: evenly, with few moves, and with every assignment known to all
members.

aiokafka's own strategies give a member its partitions and nothing about the others, and assign from scratch at every
change. Ours sends two more things in fields that Kafka's protocol provides: each member reports its incarnation, the
partitions it holds, its liveness endpoint and whether it is a standby, and the leader sends all assignments to all
members with their ids in the group. The leader keeps as many members without partitions as LOOMLOG_SPARES says.

Before: group.py joins the group with it. After: services/stream/ownership/assignment.py follows the assignment.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from loomlog.connectors.protocols import MemberAssignment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member reports about itself when it joins."""

    incarnation: str
    held: frozenset[int] = frozenset()
    is_standby: bool = False
    address: str = ""


def balance(partitions: Sequence[int], held: Mapping[str, frozenset[int]], *, spares: int = 0) -> dict[str, list[int]]:
    """Return the partitions of each member, sorted. `held` is what each holds now.

    `spares` members get none, but at least one is active; the counts of the active ones differ by at most one.
    """
    unassigned = frozenset(partitions)
    # Members that hold most get the remainder, so that they give up the least. They also stay active: a spare that
    # took over keeps what it has, and the member that comes back becomes the spare.
    members = sorted(held, key=lambda member: (-len(held[member] & unassigned), member))
    order = members[: max(1, len(members) - spares)]
    least, over = divmod(len(unassigned), len(order))
    quotas = {member: least + (place < over) for place, member in enumerate(order)}
    left, assignment = set(unassigned), {member: list[int]() for member in members}
    for member in order:
        assignment[member] = sorted(held[member] & left)[: quotas[member]]
        left.difference_update(assignment[member])
    free = sorted(left)
    for member in order:
        missing = quotas[member] - len(assignment[member])
        assignment[member] = sorted(assignment[member] + free[:missing])
        free = free[missing:]
    return assignment


class BalancedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka ships no types
    """The assignment strategy of one member. aiokafka's own are classes; it only calls them, so an
    instance works too.
    """

    name = "loomlog-sharing"
    version = 0

    def __init__(self, incarnation: str, *, is_standby: bool, address: str = "", spares: int = 0) -> None:
        """`spares` counts when this member is the leader: how many members it leaves without partitions."""
        self.get_held_partitions: Callable[[], Iterable[int]] = tuple
        self._incarnation = incarnation
        self._is_standby = is_standby
        self._address = address
        self._spares = spares
        self._assignments: Mapping[str, MemberAssignment] = {}

    def latest_assignments(self) -> Mapping[str, MemberAssignment]:
        """Return all assignments by incarnation, as of the last rebalance."""
        return self._assignments

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = {
            "life": self._incarnation,
            "held": sorted(self.get_held_partitions()),
            "stands_by": self._is_standby,
            "address": self._address,
        }
        return ConsumerProtocolMemberMetadata(self.version, list(topics), json.dumps(user_data).encode())

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        members_metadata = {member: _parse_metadata(metadata.user_data) for member, metadata in members.items()}
        [topic] = {topic for metadata in members.values() for topic in metadata.subscription}
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if 1 < len(members) <= self._spares:
            log.warning(
                "LOOMLOG_SPARES is %d, but the group of %s has only %d members: one owns all partitions, %d wait",
                self._spares,
                topic,
                len(members),
                len(members) - 1,
            )
        # By incarnation, which is the same in all groups of a process, so that all of them choose the same spares.
        parts = balance(
            partitions, {one.incarnation: one.held for one in members_metadata.values()}, spares=self._spares
        )
        shares = {
            one.incarnation: {
                "partitions": parts[one.incarnation],
                "stands_by": one.is_standby,
                "address": one.address,
                "member_id": member,
            }
            for member, one in members_metadata.items()
        }
        everybody = json.dumps(shares).encode()
        return {
            member: ConsumerProtocolMemberAssignment(self.version, [(topic, parts[one.incarnation])], everybody)
            for member, one in members_metadata.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        shares = json.loads(assignment.user_data)
        self._assignments = {
            life: MemberAssignment(
                partitions=frozenset(share["partitions"]),
                is_standby=share["stands_by"],
                address=share.get("address", ""),  # a leader of the version before sends none
                member_id=share.get("member_id", ""),
            )
            for life, share in shares.items()
        }


def _parse_metadata(user_data: bytes) -> MemberMetadata:
    fields = json.loads(user_data)
    return MemberMetadata(
        incarnation=fields["life"],
        held=frozenset(fields["held"]),
        is_standby=fields["stands_by"],
        address=fields.get("address", ""),  # a member of the version before has none
    )
