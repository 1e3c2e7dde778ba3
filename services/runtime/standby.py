"""Resources for standby in both directions: the liveness socket others watch, and a tail and a reader to follow others.

With spares (LOOMLOG_SPARES) no process follows others in the log, so there is only the socket.

Before: resources.py opens it. After: services/stream/ownership/standby.py, services/stream/ownership/spare.py.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from loomlog.connectors.kafka import KafkaRanges, KafkaTail
from loomlog.connectors.process.liveness_sockets import LivenessServer
from loomlog.services.runtime.run_host import StandbyReaders
from loomlog.services.runtime.settings import RuntimeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyResources:
    """Resources to have standbys and to be one."""

    liveness_server: LivenessServer
    readers: StandbyReaders | None
    """None where spares wait instead of standbys that fold."""


async def open_standby(
    stack: AsyncExitStack, settings: RuntimeSettings, events_topic: str, partitions: int, incarnation: str
) -> StandbyResources | None:
    """Open all standby resources, to be closed with the stack; None when standby is off."""
    if not settings.standby_address:
        return None
    readers = await open_readers(stack, settings, events_topic, partitions)
    liveness_server = LivenessServer(settings.standby_address, incarnation)
    await liveness_server.open()
    stack.push_async_callback(liveness_server.close)
    return StandbyResources(liveness_server=liveness_server, readers=readers)


async def open_readers(
    stack: AsyncExitStack, settings: RuntimeSettings, events_topic: str, partitions: int
) -> StandbyReaders | None:
    """Open what a standby reads an events topic with; None where spares wait, or without standbys."""
    if not settings.standby_address or settings.spares:
        return None
    ranges = KafkaRanges(settings.kafka)
    await ranges.start()
    stack.push_async_callback(ranges.close)
    tail = KafkaTail(
        settings.kafka,
        events_topic,
        dict.fromkeys(range(partitions), 0),
    )
    await tail.start()
    stack.push_async_callback(tail.close)
    tail.pause(range(partitions))
    return StandbyReaders(tail=tail, ranges=ranges)
