"""Which partitions this process is to own, as far as it has heard. A hint: only a Claim in the log says who owns.

Before: connectors/kafka/group.py hears it from the broker. After: assignment.py claims and gives up.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from loomlog.connectors.protocols import MemberAssignment


class Membership(Protocol):
    """Tells which partitions to own; loomlog.connectors.kafka.KafkaGroup, or a fixed set."""

    assigned: frozenset[int]
    members: Mapping[str, MemberAssignment]
    """What everybody is to own, by life; empty when that is not known."""
    changed: asyncio.Event

    async def stay(self) -> None: ...


class FixedMembership:
    """Owns the given partitions for ever: for tests, simulation and a single process."""

    def __init__(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        self.members: Mapping[str, MemberAssignment] = {}
        self.changed = asyncio.Event()
        self.changed.set()

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()
