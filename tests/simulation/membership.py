"""What the group says, as far as a process has heard (protocol services.stream.ownership.membership.Membership)."""

import asyncio
from collections.abc import Mapping

from loomlog.connectors.protocols import MemberAssignment


class Membership:
    """Of one process and one family."""

    def __init__(self) -> None:
        self.may_own = True
        """False: the process is no member, whatever it hears."""
        self._assigned: frozenset[int] = frozenset()
        self._members: Mapping[str, MemberAssignment] = {}
        self.changed = asyncio.Event()
        self._generation = 0

    @property
    def assigned(self) -> frozenset[int]:
        return self._assigned if self.may_own else frozenset()

    @property
    def members(self) -> Mapping[str, MemberAssignment]:
        return self._members if self.may_own else {}

    def allow(self, may_own: bool) -> None:
        """Join or leave, as connectors/kafka/group.py does."""
        if may_own != self.may_own:
            self.may_own = may_own
            self.changed.set()

    async def stay(self) -> None:
        await asyncio.get_running_loop().create_future()

    def hear(self, generation: int, life: str, members: Mapping[str, MemberAssignment]) -> None:
        """What everybody is to own, as the one of that life hears it. Rebalances come in order; one that was overtaken
        is never heard of."""
        if generation < self._generation:
            return
        self._generation = generation
        if members != self._members:
            self._assigned, self._members = members[life].partitions, members
            self.changed.set()
