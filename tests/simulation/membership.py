"""What the group says, as far as a process has heard (protocol services.stream.ownership.membership.Membership)."""

import asyncio
from collections.abc import Mapping

from loomlog.connectors.protocols import MemberAssignment


class Membership:
    """Of one process and one family."""

    def __init__(self) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.members: Mapping[str, MemberAssignment] = {}
        self.changed = asyncio.Event()
        self._generation = 0

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()

    def hear(self, generation: int, life: str, members: Mapping[str, MemberAssignment]) -> None:
        """What everybody is to own, as the one of that life hears it. Rebalances come in order; one that was overtaken
        is never heard of."""
        if generation < self._generation:
            return
        self._generation = generation
        if members != self.members:
            self.assigned, self.members = members[life].partitions, members
            self.changed.set()
