"""The snapshot store, emptied while everybody works: its topic is deleted and made anew.

Not chosen: deleting its records. A broker refuses that for a compacted topic, and a topic that is gone for a moment is
the harder case.

Before: striker.  After: loomlog.redpanda.apply.
"""

import asyncio
from functools import partial

from loomlog.redpanda.apply import apply
from loomlog.redpanda.cluster import ClusterProblem
from loomlog.redpanda.topics import Profile
from tests.chaos.cluster import answered, open_admin

SNAPSHOTS = "loom.run.snapshots"
WIPE_TIMEOUT_S = 90.0
LOOK_S = 0.1


async def wipe_snapshots(bootstrap: str, *, partitions: int, profile: Profile) -> None:
    """Returns when the topic is there again, empty. Raises TimeoutError, KafkaError."""
    async with asyncio.timeout(WIPE_TIMEOUT_S):
        await answered(partial(_deleted, bootstrap))
        while True:
            try:
                await apply(bootstrap, partitions=partitions, profile=profile)
                return
            except ClusterProblem:  # a broker that has not heard of the deletion yet says that it exists
                await asyncio.sleep(LOOK_S)


async def _deleted(bootstrap: str) -> bool | None:
    """True when it is gone, None when it has to be asked for again."""
    async with open_admin(bootstrap) as admin:
        if SNAPSHOTS not in await admin.list_topics():
            return True
        await admin.delete_topics([SNAPSHOTS])
    return None
