"""The spare: a process without partitions that is ready to own, and claims when the owner's liveness socket breaks.

The group's leader leaves some members without partitions (LOOMLOG_SPARES). Such a member has imported everything and is
connected; while it waits it folds nothing and reads no log. It keeps one connection to the liveness endpoint of each
owner, which the group sends with the assignments, and claims all partitions of an owner that falls to it and whose
connection broke for good. The takeover then folds from the latest partition snapshot. A false alarm is safe: it is one
more Claim.

Each owner falls to one spare, the same in the view of all processes, so that the death of an owner activates one spare
and the others stay spares. They watch it too: it falls to one of them when its spare is not there any more.

Not chosen: a spare that folds as standby.py does. It saves the fold of a takeover (about 50 ms with 1,000 live runs),
and costs a fifth to two fifths of the throughput where all processes share two cores.

Before: assignment.py passes the latest assignments. After: assignment.py claims.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from loomlog.connectors.protocols import MemberAssignment
from loomlog.services.stream.ownership.standby import DEAD_OWNERS_MAX, choose_standby
from loomlog.services.stream.partition.recovered_state import PartitionFold

log = logging.getLogger(__name__)


def partitions_watched_by(life: str, members: Mapping[str, MemberAssignment]) -> dict[str, frozenset[int]]:
    """Return the partitions of the owners whose death that member notices, by the owner's liveness endpoint.

    Empty unless the member is a spare: one without partitions.
    """
    if life not in _spares(members):
        return {}
    return {share.address: share.partitions for share in members.values() if share.partitions and share.address}


def owners_left_to(life: str, members: Mapping[str, MemberAssignment]) -> frozenset[str]:
    """Return the liveness endpoints of the owners whose partitions that member is to claim when they die."""
    spares = _spares(members)
    return frozenset(
        share.address for owner, share in members.items() if share.partitions and choose_standby(owner, spares) == life
    )


def _spares(members: Mapping[str, MemberAssignment]) -> list[str]:
    return [name for name, share in members.items() if share.is_standby and not share.partitions]


class Spare:
    """Watches owners. `owner_died(partition, incarnation)` is called for each partition of one that has died and falls
    to this process.

    `life` is this process's own incarnation in the group; `until_gone` is
    loomlog.connectors.process.liveness_sockets.wait_for_disconnect.
    """

    warm_partitions = 0
    """A spare folds nothing."""

    def __init__(
        self, family: str, *, life: str, until_gone: Callable[[str, Callable[[], None]], Awaitable[bool]]
    ) -> None:
        self.life = life
        self.owner_died: Callable[[int, str], None] = lambda partition, life: None
        self._family = family
        self._until_gone = until_gone
        self._watched: Mapping[str, frozenset[int]] = {}
        """Partitions by the liveness endpoint of their owner."""
        self._ours = frozenset[str]()
        """Endpoints of the owners that fall to this process."""
        self._connections: dict[str, asyncio.Task[None]] = {}
        """By endpoint; a closed one stays, so that it is not opened again while its process is still named."""
        self._greeted: set[str] = set()
        self._dead: dict[str, set[int]] = {}
        """Endpoints that broke for good, oldest first, with the partitions for which that was reported: once, because
        an owner that was declared dead by mistake must not be claimed against again and again.
        """
        self._group: asyncio.TaskGroup | None = None

    @property
    def watched_partitions(self) -> int:
        """Number of partitions whose owner's death is or would be noticed."""
        return sum(len(partitions) for endpoint, partitions in self._watched.items() if endpoint in self._greeted)

    def update(self, members: Mapping[str, MemberAssignment], owned: frozenset[int]) -> None:
        """Watch the owners of the latest assignments; `owned` is what this process owns itself."""
        watched = partitions_watched_by(self.life, members)
        self._ours = owners_left_to(self.life, members)
        self._watched = {endpoint: partitions - owned for endpoint, partitions in watched.items()}
        self._connect()
        self._report_dead_owners()

    def take(self, partition: int) -> PartitionFold | None:
        """Return the fold of a partition that is about to be claimed: None, there is none."""
        del partition
        return None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._connect()
            await asyncio.get_running_loop().create_future()

    def _connect(self) -> None:
        """Keep connections to the watched owners, and no others."""
        for endpoint in set(self._connections) - set(self._watched):
            task = self._connections.pop(endpoint)
            self._greeted.discard(endpoint)
            if task is not asyncio.current_task():  # which has just reported a death
                task.cancel()
        for endpoint in set(self._watched) - set(self._connections) - set(self._dead):
            if self._group is not None:
                self._connections[endpoint] = self._group.create_task(self._wait_for(endpoint))

    async def _wait_for(self, endpoint: str) -> None:
        is_dead = await self._until_gone(endpoint, partial(self._greeted.add, endpoint))
        self._greeted.discard(endpoint)
        if not is_dead:
            return
        log.warning("%s: the process at %s has died", self._family, endpoint)
        self._dead[endpoint] = set()
        if len(self._dead) > DEAD_OWNERS_MAX:
            del self._dead[next(iter(self._dead))]
        self._report_dead_owners()

    def _report_dead_owners(self) -> None:
        for endpoint, partitions in list(self._watched.items()):
            reported = self._dead.get(endpoint)
            if reported is not None and endpoint in self._ours:
                for number in sorted(partitions - reported):
                    reported.add(number)
                    self.owner_died(number, endpoint.rpartition("/")[2])
