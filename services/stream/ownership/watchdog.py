"""Checks for failures without a symptom: a quiet partition that another process has claimed, and a batch without an
acknowledgement.

An append shows an owner whether it was fenced, so one that has nothing to append must check. A batch without progress
although the broker answers means that our producer is broken: the process ends, and its supervisor restarts it. Time in
which the broker was unavailable does not count.

Before: services/stream/host.py runs both. After: assignment.py receives what was lost.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from loomlog.connectors.errors import Transient
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.flusher import Flusher, has_claim_between
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.ownership.standby import PausableTail
from loomlog.services.stream.partition.partition import Partition

QUIET_CHECK_EVERY_S = 5.0
"""Interval at which an owner that appends nothing checks for a foreign Claim; one small request for each quiet
partition, and the longest wait of a run that another owner started and left.
"""
STALL_S = 30.0
"""Age of a batch on the wire, while the broker answers, at which our producer counts as broken and the process ends."""
SUSPICIOUS_S = 2.0
"""Age of a batch from which on the broker is asked whether it is reachable."""
WATCH_EVERY_S = 1.0
BROKER_TIMEOUT_S = 5.0
"""Time within which a reachable broker answers."""


async def watch_quiet_partitions(
    context: HostContext, owners: Mapping[int, PartitionOwner], lost: Callable[[PartitionOwner, str], None]
) -> None:
    """Report partitions that were claimed by others, until cancelled."""
    while True:
        await asyncio.sleep(QUIET_CHECK_EVERY_S)
        for owner in list(owners.values()):
            partition = owner.partition
            if partition is None or not partition.is_idle:
                continue
            if await _is_fenced(context, partition) and owner.partition is partition:
                lost(owner, "fenced")


async def _is_fenced(context: HostContext, partition: Partition) -> bool:
    topic, number, start = context.topics.events, partition.number, partition.next_offset
    try:
        end = await context.ranges.end_offset(topic, number)
        return end > start and await has_claim_between(context.ranges, context.codec, topic, number, start, end)
    except Transient:
        return False  # the next check may succeed


async def watch_in_flight_batch(flusher: Flusher, commands: PausableTail) -> None:
    """Raises RuntimeError if a batch is stuck although the broker answers for the `commands`; until cancelled."""
    answers_since = time.monotonic()
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        since, now = flusher.in_flight_since, time.monotonic()
        if since is None or now - since < SUSPICIOUS_S:
            continue
        if not await _broker_answers(commands):
            answers_since = time.monotonic()
        elif now - max(since, answers_since) > STALL_S:
            raise RuntimeError(f"a batch made no progress in {STALL_S:.0f} s although the broker answers")


async def _broker_answers(commands: PausableTail) -> bool:
    try:
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            await commands.end_offsets()
    except (Transient, TimeoutError):
        return False
    return True
