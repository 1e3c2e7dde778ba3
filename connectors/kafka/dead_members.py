"""Removal of dead members from the consumer group, before their session has timed out.

While a dead member is counted in, a rebalance waits for it: a process that comes back is no spare, and a spare does not
learn of the new owner, until its session (3 s) is over. Each member therefore holds the liveness sockets of its two
neighbours, in the order of incarnations, and leaves the group for one whose socket broke for good. A wrong guess is
safe: that member is told that the group does not know it, and joins again.

Not chosen: static membership (group.instance.id). The broker then gives a process that comes back what the one before
had, without a rebalance, so that the others do not learn its incarnation and its liveness endpoint.

Before: group.py passes the latest members. After: the broker rebalances the group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiokafka.errors import KafkaError

from loomlog.connectors.protocols import MemberAssignment

log = logging.getLogger(__name__)

REMOVAL_DELAY_S = 0.1
"""Between the death and the removal: who takes over has begun to claim, and reports the partitions as held."""


def neighbours(incarnation: str, members: Mapping[str, MemberAssignment]) -> dict[str, str]:
    """Return the ids in the group of the members before and after this one, by their liveness endpoints."""
    names = sorted({incarnation, *(name for name, one in members.items() if one.address and one.member_id)})
    place = names.index(incarnation)
    beside = {names[place - 1], names[(place + 1) % len(names)]} - {incarnation}
    return {members[name].address: members[name].member_id for name in beside}


class DeadMembers:
    """Watches the neighbours. `until_gone` is loomlog.connectors.process.liveness_sockets.wait_for_disconnect, and
    `remove` tells the coordinator that the member with an id has left.
    """

    def __init__(
        self,
        incarnation: str,
        *,
        until_gone: Callable[[str], Awaitable[bool]],
        remove: Callable[[str], Awaitable[None]],
        delay_s: float = REMOVAL_DELAY_S,
    ) -> None:
        self._incarnation = incarnation
        self._until_gone = until_gone
        self._remove = remove
        self._delay_s = delay_s
        self._member_ids: Mapping[str, str] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        """By endpoint; one that is gone stays until its process is not named any more."""

    def update(self, members: Mapping[str, MemberAssignment]) -> None:
        """Watch the neighbours of the latest assignment, and no others."""
        self._member_ids = neighbours(self._incarnation, members)
        for endpoint in set(self._watching) - set(self._member_ids):
            self._watching.pop(endpoint).cancel()
        for endpoint in set(self._member_ids) - set(self._watching):
            self._watching[endpoint] = asyncio.get_running_loop().create_task(self._watch(endpoint))

    async def close(self) -> None:
        """Watch no member any more."""
        tasks, self._watching = tuple(self._watching.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, endpoint: str) -> None:
        if not await self._until_gone(endpoint):
            return
        await asyncio.sleep(self._delay_s)
        try:
            await self._remove(self._member_ids[endpoint])
        except KafkaError as error:
            log.warning("the dead member at %s stays in the group until its session is over: %s", endpoint, error)
        else:
            log.info("the dead member at %s was removed from the group", endpoint)
