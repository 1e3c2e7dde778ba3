"""One subscriber's bounded queue of items.

`put` never waits and never blocks the hub: when the subscriber is too slow the queue is emptied and closed with the
reason, and the subscriber continues from the read models. One batch of records wakes it once; a batching subscriber is
woken for an urgent item at once and for all others together when its time has passed.

Before: event_hub.py puts. After: run_stream.py waits for all of them, runs/start.py for the first.
"""

import asyncio
from collections.abc import Callable, Iterable

from loomlog.services.application.limits import QUEUE_BYTES_MAX, QUEUE_ITEMS_MAX
from loomlog.services.application.streaming.items import Item

SLOW_CONSUMER = "slow"
STOPPING = "stopping"
CLIENT_LEFT = "left"


class Subscription:
    """Items are taken in the order they were put. `closed` is the reason why no more will come;
    empty while it is open.
    """

    __slots__ = (
        "_bytes",
        "_forget",
        "_gather_until",
        "_held",
        "_items",
        "_put",
        "_timer",
        "_urgent",
        "_waiter",
        "close_reason",
        "run_id",
        "wants_previews",
    )

    def __init__(
        self,
        run_id: str,
        *,
        wants_previews: bool,
        recent: Iterable[Item] = (),
        on_close: Callable[["Subscription"], None] = lambda subscription: None,
    ) -> None:
        self.run_id = run_id
        self.wants_previews = wants_previews
        self.close_reason = ""
        # Recent events are bounded already; only what is added later counts against a slow subscriber.
        self._items: list[Item] = list(recent)
        self._put = 0
        self._bytes = 0
        # Past items are urgent.
        self._urgent = bool(self._items)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gather_until = 0.0
        """Monotonic time until which items wait, unless one of them is urgent."""
        self._held = False
        """Items wait for that time, and the timer is set."""
        self._forget = on_close

    def put(self, item: Item, *, urgent: bool = False) -> None:
        """Queue an item; call `wake` when the batch is complete. An urgent one is not delayed."""
        if self.close_reason:
            return
        self._items.append(item)
        self._urgent = self._urgent or urgent
        self._put += 1
        self._bytes += item.size
        if self._put > QUEUE_ITEMS_MAX or self._bytes > QUEUE_BYTES_MAX:
            self.close(SLOW_CONSUMER)

    def put_back(self, items: list[Item]) -> None:
        """Return unused items; they are taken next."""
        if not self.close_reason or self.close_reason == STOPPING:
            self._items[:0] = items
            self._urgent = True

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        loop = waiter.get_loop()
        if self._urgent or self.close_reason or loop.time() >= self._gather_until:
            waiter.set_result(None)
        elif not self._held:
            self._held = True
            self._set_timer(loop.call_at(self._gather_until, _wake_on_timeout, waiter))

    async def take(self, timeout_s: float, *, gather_s: float = 0.0) -> list[Item]:
        """Take everything queued; waits for the first item, at most `timeout_s`. Empty on timeout.

        With `gather_s` it returns nothing before that time has passed, except when something urgent is queued.
        """
        if timeout_s > 0 and not self.close_reason and not self._urgent and (not self._items or gather_s > 0):
            loop = asyncio.get_running_loop()
            gather_s = min(gather_s, timeout_s)
            waiter = self._waiter = loop.create_future()
            self._gather_until = loop.time() + gather_s if gather_s > 0 else 0.0
            self._held = bool(self._items)
            self._set_timer(loop.call_later(gather_s if self._held else timeout_s, _wake_on_timeout, waiter))
            try:
                await waiter
            finally:
                self._set_timer(None)
                self._waiter = None
        self._urgent = False
        items, self._items = self._items, []
        self._put = self._bytes = 0
        return items

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        """Set the one timer that ends a wait."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """Queue nothing more. A subscriber that was slow or has left also loses what it did not take."""
        if self.close_reason:
            return
        self.close_reason = reason
        if reason != STOPPING:
            self._items = []
            self._put = self._bytes = 0
        self._forget(self)
        self.wake()


def _wake_on_timeout(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
