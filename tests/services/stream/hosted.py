"""A host in a test world, and the liveness sockets between hosts."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loomlog.connectors.protocols import MemberAssignment
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.partition import Partition
from tests.services.stream.membership import FixedMembership
from tests.services.stream.outside import Wire


@dataclass(slots=True)
class Hosted:
    """A running host with what a test wants to reach."""

    name: str
    host: Host
    wire: Wire
    work: HostContext
    membership: FixedMembership
    task: asyncio.Task[None]
    past: EndedAggregates

    def partition(self, number: int = 0) -> Partition | None:
        """The partition while it is held."""
        owner = self.host.owners.get(number)
        return owner.partition if owner is not None else None

    def handled(self, offset: int, number: int = 0) -> bool:
        """The command is done with."""
        partition = self.partition(number)
        return partition is not None and partition.progress.is_handled(offset)

    def settled(self) -> bool:
        """Nothing is on its way to the log, and every acknowledgement was taken note of."""
        held = [owner.partition for owner in self.host.owners.values()]
        return all(partition is not None and partition.is_idle for partition in held)

    async def kill(self) -> None:
        """As kill -9: nothing is drained; what is on the wire may still land."""
        self.task.cancel()
        await asyncio.wait([self.task])

    def reassign(self, *partitions: int, members: Mapping[str, MemberAssignment] | None = None) -> None:
        """The group says what to own from now on."""
        self.membership.assigned = frozenset(partitions)
        self.membership.members = members or {}
        self.membership.changed.set()


class Lifelines:
    """Everybody's lifelines (loomlog.connectors.process.liveness_sockets): who holds them, and what becomes of them."""

    def __init__(self) -> None:
        self.held: dict[str, list[asyncio.Future[bool]]] = {}
        self.lives: dict[str, Hosted] = {}
        """Whom to ask for a partition; who has ended is gone."""
        self.answers: list[tuple[str, int, str]] = []

    async def until_gone(self, name: str, met: Callable[[], None]) -> bool:
        held = self.held.setdefault(name.rpartition("/")[2], [])
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        held.append(end)
        met()
        try:
            return await end
        finally:
            held.remove(end)

    async def ask_for(self, name: str, number: int, *, timeout_s: float) -> str:
        """As loomlog.connectors.process.liveness_sockets.request_handover."""
        life = name.rpartition("/")[2]
        answer = "gone"
        if life in self.lives and not self.lives[life].task.done():
            try:
                async with asyncio.timeout(timeout_s):
                    await self.lives[life].host.ownership.handover_requested(number)
                answer = "yielded"
            except TimeoutError:
                answer = "late"
        self.answers.append((life, number, answer))
        return answer

    def end(self, life: str, *, died: bool = True) -> None:
        """The process of that life has died (or seems to), or let go."""
        for end in self.held.get(life, ()):
            end.set_result(died)
