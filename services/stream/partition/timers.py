"""Timers of aggregates: run deadlines, questions that expire, idle children.

A timer is a time in the aggregate's state: it is not in the log, a new owner sets it again after folding the aggregate,
and one that fires in vain changes nothing. One heap and one task for all partitions of a process; ten thousand waiting
aggregates cost ten thousand entries and no task.

Before: decisions.py sets what family.next_timer_at returns. After: `fire` passes the aggregate to its owner.
"""

import asyncio
import heapq
from collections.abc import Callable

SLEEP_MAX_S = 1.0
"""Longest sleep while there are timers: the clock may have been set forward."""


class Timers:
    """Fires (partition, aggregate) at its time. Times are UTC milliseconds of `clock_ms`."""

    def __init__(self, clock_ms: Callable[[], int], ring: Callable[[int, str], None]) -> None:
        self._clock_ms = clock_ms
        self._ring = ring
        self._heap: list[tuple[int, int, str]] = []
        self._earlier = asyncio.Event()

    def set(self, at_ms: int, partition: int, aggregate: str) -> None:
        """Set a timer. A former one of the aggregate stays, and fires too early in vain."""
        if not self._heap or at_ms < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (at_ms, partition, aggregate))

    def fire_due(self) -> None:
        """Fire whatever is due."""
        now_ms = self._clock_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, partition, aggregate = heapq.heappop(self._heap)
            self._ring(partition, aggregate)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._earlier.clear()
            self.fire_due()
            wait_s = min(SLEEP_MAX_S, (self._heap[0][0] - self._clock_ms()) / 1000) if self._heap else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._earlier.wait()
            except TimeoutError:
                continue
