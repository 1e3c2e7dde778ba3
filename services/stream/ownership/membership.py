"""The partitions assigned to this process, as far as it knows. A hint: only a Claim in the log determines the owner.

Before: connectors/kafka/group.py receives it from the broker. After: assignment.py claims and releases.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from loomlog.connectors.protocols import MemberAssignment


class Membership(Protocol):
    """The partitions to own; loomlog.connectors.kafka.KafkaGroup."""

    changed: asyncio.Event

    @property
    def assigned(self) -> frozenset[int]: ...

    @property
    def members(self) -> Mapping[str, MemberAssignment]:
        """Assignments of all members, by incarnation; empty if not known."""
        ...

    async def stay(self) -> None: ...
