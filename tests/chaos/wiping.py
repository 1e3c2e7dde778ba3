"""The snapshot store, emptied while everybody works: its topic is deleted and made anew.

Not chosen: deleting its records. A broker refuses that for a compacted topic, and a topic that is gone for a moment is
the harder case.

Before: striker.  After: redpanda.apply.
"""

import asyncio

from aiokafka.admin import AIOKafkaAdminClient

from redpanda.apply import apply
from redpanda.cluster import ClusterProblem
from redpanda.topics import Profile

SNAPSHOTS = "loom.run.snapshots"
WIPE_TIMEOUT_S = 30.0
LOOK_S = 0.1


async def wipe_snapshots(bootstrap: str, *, partitions: int, profile: Profile) -> None:
    """Returns when the topic is there again, empty. Raises TimeoutError, KafkaError."""
    async with asyncio.timeout(WIPE_TIMEOUT_S):
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([SNAPSHOTS])
            while SNAPSHOTS in await admin.list_topics():
                await asyncio.sleep(LOOK_S)
        finally:
            await admin.close()
        while True:
            try:
                await apply(bootstrap, partitions=partitions, profile=profile)
                return
            except ClusterProblem:  # a broker that has not heard of the deletion yet says that it exists
                await asyncio.sleep(LOOK_S)
