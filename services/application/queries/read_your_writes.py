"""Read-your-writes: a position in the log identifies a write, and a read waits until the read models have passed it.

    implicit    a read of one resource waits, shortly, for what this process has seen of its partition
    explicit    a read with a position token waits a little longer; then it returns not_yet and the lag
    complete    everything in the log now, by any process: for sums that must not miss anything

A token is `run.events/<partition>:<offset>`; every write returns one. The longer form of the read models
(`loom.run.events:<partition>:<offset>`) is accepted too, so that both kinds of tools can pass tokens on.

Before: services/application/runs/start.py, services/application/streaming/run_stream.py. After:
projections/engine/positions.py.
"""

import asyncio
import re
from collections.abc import Mapping

from loomlog.projections.engine.cursors import Position
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_SOON_S, RequestRefused, bad_request
from loomlog.services.application.queries.read_models import Positions
from loomlog.services.application.streaming.event_hub import EventHub

POSITION_PATTERN = re.compile(r"(?:loom\.)?run\.events[/:](\d{1,9}):(\d{1,18})\Z")


class PositionBarrier:
    """Waits for the read models of one events topic."""

    def __init__(self, hub: EventHub, positions: Positions, *, topic: str) -> None:
        self._hub = hub
        self._positions = positions
        self.topic = topic

    def token(self, partition: int, offset: int) -> str:
        """Return the position token of a record of the events topic."""
        return f"run.events/{partition}:{offset}"

    def log_ends(self) -> dict[int, int]:
        """Return the offset after the last record this process has seen, by partition."""
        return {number: self._hub.position(number) for number in self._hub.partitions}

    async def wait_for_own_writes(self, partition: int | None, *, timeout_s: float = limits.OWN_WRITES_WAIT_S) -> int:
        """Wait for what this process has seen of the partition, or of all when it is unknown.

        Returns the number of records the read models still lack, 0 when they have all. Never fails.
        """
        asked = self._hub.partitions if partition is None else [partition]
        deadline = asyncio.get_running_loop().time() + timeout_s
        lag = 0
        for number in asked:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            lag += await self._wait(number, self._hub.position(number) - 1, left)
        return lag

    async def wait_for_all(self, ends: Mapping[int, int], *, timeout_s: float) -> None:
        """Wait for everything before these offsets of the partitions. Raises RequestRefused: not_yet with the lag."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        lag = 0
        for partition, end in ends.items():
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            lag += await self._wait(partition, end - 1, left)
        if lag:
            raise not_yet_error("the read models have not reached the end of the log", lag)

    async def wait_for(self, token: str, *, timeout_s: float = limits.POSITION_WAIT_S) -> None:
        """Wait for the position of a token. Raises RequestRefused: bad_request, or not_yet with the lag."""
        match = POSITION_PATTERN.match(token)
        if match is None or int(match[1]) not in self._hub.partitions:
            raise bad_request(
                f"the position {token[:80]!r} is not one of ours: expected run.events/<partition>:<offset>"
            )
        partition, offset = int(match[1]), int(match[2])
        lag = await self._wait(partition, offset, timeout_s)
        if lag:
            raise not_yet_error(f"the read models have not reached {self.token(partition, offset)}", lag)

    async def _wait(self, partition: int, offset: int, timeout_s: float) -> int:
        """Return the number of missing records after the wait; 0 when none is."""
        if offset < 0:
            return 0
        position = Position(topic=self.topic, partition=partition, offset=offset)
        arrival = await self._positions.wait(position, timeout_s=timeout_s)
        return 0 if arrival.is_reached else max(1, arrival.lag)


def not_yet_error(what: str, lag: int) -> RequestRefused:
    """Return the refusal of a read that would be older than its caller may expect."""
    return RequestRefused(
        "not_yet",
        f"{what}: {lag} records are missing; try again",
        retry_after_s=RETRY_SOON_S,
        details={"lag": lag},
    )
