"""What a runtime needs to be stood by for, and to stand by for others: a lifeline, a tail and a reader of its own.

Before: main.py opens it. After: services/stream/ownership/standby.py.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from loomlog.connectors.kafka import KafkaRanges, KafkaTail
from loomlog.connectors.process.liveness_sockets import LivenessServer
from loomlog.services.runtime.settings import RuntimeSettings

STANDBY_FETCH_WAIT_MS = 500
"""Longest wait of an empty fetch of the standby's tail: nobody waits for it, and two a second cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyResources:
    """What a process needs to be stood by for, and to stand by for others."""

    liveness_server: LivenessServer
    tail: KafkaTail
    ranges: KafkaRanges


async def open_standby(
    stack: AsyncExitStack, settings: RuntimeSettings, events_topic: str, partitions: int, incarnation: str
) -> StandbyResources | None:
    """Everything open, to be closed with the stack; None when it is switched off."""
    if not settings.standby_address:
        return None
    ranges = KafkaRanges(settings.kafka)
    await ranges.start()
    stack.push_async_callback(ranges.close)
    tail = KafkaTail(
        settings.kafka,
        events_topic,
        dict.fromkeys(range(partitions), 0),
        fetch_max_wait_ms=STANDBY_FETCH_WAIT_MS,
    )
    await tail.start()
    stack.push_async_callback(tail.close)
    tail.pause(range(partitions))
    lifeline = LivenessServer(settings.standby_address, incarnation)
    await lifeline.open()
    stack.push_async_callback(lifeline.close)
    return StandbyResources(liveness_server=lifeline, tail=tail, ranges=ranges)
