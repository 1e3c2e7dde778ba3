"""One subscriber's bounded queue of what happens to one run.

`put` never waits and never blocks the hub: when the subscriber is too slow the queue is emptied and closed with the
reason, and the subscriber goes on from the read models. One batch of records wakes it once.

Before: hub.py puts. After: decision.py waits for one event, follow.py for all of them.
"""

import asyncio
from collections.abc import Callable, Iterable

from services.commands.items import Item
from services.commands.limits import QUEUE_BYTES_MAX, QUEUE_ITEMS_MAX

SLOW = "slow"
STOPPING = "stopping"
LEFT = "left"


class Subscription:
    """What is put is taken in the same order. `closed` says why nothing more will come; empty while it is open."""

    __slots__ = ("_bytes", "_forget", "_items", "_put", "_waiter", "closed", "run_id", "wants_previews")

    def __init__(
        self,
        run_id: str,
        *,
        wants_previews: bool,
        recent: Iterable[Item] = (),
        forget: Callable[["Subscription"], None] = lambda subscription: None,
    ) -> None:
        self.run_id = run_id
        self.wants_previews = wants_previews
        self.closed = ""
        # What the ring has is bounded there; only what comes on top of it tells who is slow.
        self._items: list[Item] = list(recent)
        self._put = 0
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._forget = forget

    def put(self, item: Item) -> None:
        """Queue an item; call `wake` when the batch is through."""
        if self.closed:
            return
        self._items.append(item)
        self._put += 1
        self._bytes += item.size
        if self._put > QUEUE_ITEMS_MAX or self._bytes > QUEUE_BYTES_MAX:
            self.close(SLOW)

    def give_back(self, items: list[Item]) -> None:
        """Items that were taken and not used; they are the next to be taken."""
        if not self.closed or self.closed == STOPPING:
            self._items[:0] = items

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def take(self, timeout_s: float) -> list[Item]:
        """Everything that is queued; waits for the first of it, at most `timeout_s`. Empty when nothing came."""
        if not self._items and not self.closed and timeout_s > 0:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _expire, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        items, self._items = self._items, []
        self._put = self._bytes = 0
        return items

    def close(self, reason: str = LEFT) -> None:
        """Nothing more is queued. A subscriber that was slow or has left also loses what it did not take."""
        if self.closed:
            return
        self.closed = reason
        if reason != STOPPING:
            self._items = []
            self._put = self._bytes = 0
        self._forget(self)
        self.wake()


def _expire(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
