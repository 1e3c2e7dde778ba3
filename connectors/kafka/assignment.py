"""Assigns partitions to the members of the group: evenly, with few moves, and with every assignment known to all
members.

aiokafka's own strategies give a member its partitions and nothing about the others, and assign from scratch at every
change. Ours sends two more things in fields that Kafka's protocol provides: each member reports its incarnation, the
partitions it holds and whether it is a standby, and the leader sends all assignments to all members.

Before: group.py joins the group with it. After: services/stream/ownership/assignment.py follows the assignment.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from loomlog.connectors.protocols import MemberAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member reports about itself when it joins."""

    incarnation: str
    held: frozenset[int] = frozenset()
    is_standby: bool = False


def balance(partitions: Sequence[int], held: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
    """Return the partitions of each member, sorted; the counts differ by at most one. `held` is what each holds now."""
    unassigned = frozenset(partitions)
    # Members that hold most get the remainder, so that they give up the least.
    order = sorted(held, key=lambda member: (-len(held[member] & unassigned), member))
    least, over = divmod(len(unassigned), len(order))
    quotas = {member: least + (place < over) for place, member in enumerate(order)}
    left, assignment = set(unassigned), dict[str, list[int]]()
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

    def __init__(self, incarnation: str, *, is_standby: bool) -> None:
        self.get_held_partitions: Callable[[], Iterable[int]] = tuple
        self._incarnation = incarnation
        self._is_standby = is_standby
        self._assignments: Mapping[str, MemberAssignment] = {}

    def latest_assignments(self) -> Mapping[str, MemberAssignment]:
        """Return all assignments by incarnation, as of the last rebalance."""
        return self._assignments

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = {
            "life": self._incarnation,
            "held": sorted(self.get_held_partitions()),
            "stands_by": self._is_standby,
        }
        return ConsumerProtocolMemberMetadata(self.version, list(topics), json.dumps(user_data).encode())

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        members_metadata = {member: _parse_metadata(metadata.user_data) for member, metadata in members.items()}
        [topic] = {topic for metadata in members.values() for topic in metadata.subscription}
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        parts = balance(partitions, {member: one.held for member, one in members_metadata.items()})
        shares = {
            one.incarnation: {"partitions": parts[member], "stands_by": one.is_standby}
            for member, one in members_metadata.items()
        }
        everybody = json.dumps(shares).encode()
        return {
            member: ConsumerProtocolMemberAssignment(self.version, [(topic, part)], everybody)
            for member, part in parts.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        shares = json.loads(assignment.user_data)
        self._assignments = {
            life: MemberAssignment(partitions=frozenset(share["partitions"]), is_standby=share["stands_by"])
            for life, share in shares.items()
        }


def _parse_metadata(user_data: bytes) -> MemberMetadata:
    fields = json.loads(user_data)
    return MemberMetadata(incarnation=fields["life"], held=frozenset(fields["held"]), is_standby=fields["stands_by"])
