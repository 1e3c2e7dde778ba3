"""The membership of a process that owns what it is given."""

import asyncio
from collections.abc import Mapping

from loomlog.connectors.protocols import MemberAssignment


class FixedMembership:
    """Owns the given partitions for ever (protocol Membership)."""

    def __init__(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        self.members: Mapping[str, MemberAssignment] = {}
        self.changed = asyncio.Event()
        self.changed.set()

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()
