"""Who of the group is to own what: evenly, with as few moves as possible, and so that everybody knows of everybody.

aiokafka's own strategies tell a member its partitions and nothing of the others, and deal anew at every change. Ours
sends two things along in the fields that Kafka's protocol has for it: each member says under which life it runs, what
it holds and whether it stands by for others, and the leader sends everybody's share to everybody.

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
    """What a member says of itself when it joins."""

    incarnation: str
    held: frozenset[int] = frozenset()
    is_standby: bool = False


def balance(partitions: Sequence[int], held: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
    """The partitions of each member, sorted; the numbers differ by at most one. `held` is what each holds now."""
    wanted = frozenset(partitions)
    # Who holds most gets what is left over, so that it has to give up the least.
    order = sorted(held, key=lambda member: (-len(held[member] & wanted), member))
    least, over = divmod(len(wanted), len(order))
    quotas = {member: least + (place < over) for place, member in enumerate(order)}
    left, found = set(wanted), dict[str, list[int]]()
    for member in order:
        found[member] = sorted(held[member] & left)[: quotas[member]]
        left.difference_update(found[member])
    free = sorted(left)
    for member in order:
        missing = quotas[member] - len(found[member])
        found[member] = sorted(found[member] + free[:missing])
        free = free[missing:]
    return found


class BalancedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka ships no types
    """One member's strategy. aiokafka's own are classes; it only calls them, so an object with a memory will do."""

    name = "loomlog-sharing"
    version = 0

    def __init__(self, incarnation: str, *, is_standby: bool) -> None:
        self.get_held_partitions: Callable[[], Iterable[int]] = tuple
        self._incarnation = incarnation
        self._is_standby = is_standby
        self._assignments: Mapping[str, MemberAssignment] = {}

    def latest_assignments(self) -> Mapping[str, MemberAssignment]:
        """Everybody's share by life as the last assignment told it."""
        return self._assignments

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        told = {"life": self._incarnation, "held": sorted(self.get_held_partitions()), "stands_by": self._is_standby}
        return ConsumerProtocolMemberMetadata(self.version, list(topics), json.dumps(told).encode())

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        told = {member: _parse_metadata(metadata.user_data) for member, metadata in members.items()}
        [topic] = {topic for metadata in members.values() for topic in metadata.subscription}
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        parts = balance(partitions, {member: one.held for member, one in told.items()})
        shares = {
            one.incarnation: {"partitions": parts[member], "stands_by": one.is_standby} for member, one in told.items()
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
    found = json.loads(user_data)
    return MemberMetadata(incarnation=found["life"], held=frozenset(found["held"]), is_standby=found["stands_by"])
