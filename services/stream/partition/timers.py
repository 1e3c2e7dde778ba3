"""When aggregates want to be looked at again of themselves: run deadlines, questions that expire, idle children.

What an aggregate waits for is in its state, so an alarm is nothing but the time its state names: it is not in the log,
a new owner sets it again when it has folded the aggregate, and one that rings in vain changes nothing. One heap and one
task for all partitions of a process; ten thousand waiting aggregates cost ten thousand entries and no task.

Before: decisions.py sets what family.wakes_at says. After: `ring` gives the aggregate the family's order for it.
"""

import asyncio
import heapq
from collections.abc import Callable

SLEEP_MAX_S = 30.0
"""Also with nothing due: the clock may have been set forward meanwhile."""


class Timers:
    """Rings (partition, aggregate) at its time. Times are UTC milliseconds of `clock_ms`."""

    def __init__(self, clock_ms: Callable[[], int], ring: Callable[[int, str], None]) -> None:
        self._clock_ms = clock_ms
        self._ring = ring
        self._heap: list[tuple[int, int, str]] = []
        self._earlier = asyncio.Event()

    def set(self, at_ms: int, partition: int, aggregate: str) -> None:
        """Ring then. A former alarm of the aggregate stays, and finds that it is too early."""
        if not self._heap or at_ms < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (at_ms, partition, aggregate))

    def fire_due(self) -> None:
        """Ring whatever is due."""
        now_ms = self._clock_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, partition, aggregate = heapq.heappop(self._heap)
            self._ring(partition, aggregate)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._earlier.clear()
            self.fire_due()
            wait_s = min(SLEEP_MAX_S, (self._heap[0][0] - self._clock_ms()) / 1000) if self._heap else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._earlier.wait()
            except TimeoutError:
                continue
