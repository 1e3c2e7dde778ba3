"""Slots of a bounded resource, shared by tenants and principals: taken at once or waited for, and always released.

    with slots.try_acquire(holder): ...                   refused at once
    with await slots.acquire(holder, wait_s=5): ...       in turn (services/core/shares.py), up to a time
    slot = slots.try_acquire(holder); slot.release()      for what is held longer than a call

Both raise ShareExhausted, which transports answer as 429 (the caller's own share) or 503 (the total). Those that wait
are bounded by shares of their own, so no tenant fills the queue of all. For one event loop: nothing suspends between
looking and taking.

After: services/core/shares.py decides who may and who is next.
"""

import asyncio
import time
from collections import Counter
from types import TracebackType

from loomlog.services.core.shares import Holder, ShareExhausted, ShareLimits, Shares
from loomlog.services.stream.histogram import CALL_SECONDS, Histogram

WAITING_PER_SLOT = 16
"""Places for those that wait, for each slot: a longer queue would not be served within any sensible wait."""


class HeldSlot:
    """A slot that is held; releasing it twice counts once."""

    __slots__ = ("_is_held", "_slots", "holder")

    def __init__(self, slots: "SharedSlots", holder: Holder) -> None:
        self.holder = holder
        self._slots = slots
        self._is_held = True

    def release(self) -> None:
        """Release the slot to the next of those that wait."""
        if self._is_held:
            self._is_held = False
            self._slots.shares.release(self.holder)
            self._slots.serve()

    def __enter__(self) -> "HeldSlot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SharedSlots:
    """Slots of one resource in this process. `waiting`: bounds of those that wait, by default 16 for each slot."""

    def __init__(self, resource: str, limits: ShareLimits, *, waiting: ShareLimits | None = None) -> None:
        """`resource` is a plural noun, as in "event streams"."""
        self.shares = Shares(resource, limits)
        self.queued = Shares(
            f"places in the queue for {resource}", waiting or ShareLimits.of(WAITING_PER_SLOT * limits.total)
        )
        self.refused: Counter[str] = Counter()
        """Refusals by bound: total, tenant, principal."""
        self.wait_seconds = Histogram(CALL_SECONDS)
        """Wait times of those that had to wait and got a slot."""
        self._entered: dict[int, asyncio.Future[None]] = {}

    def try_acquire(self, holder: Holder) -> HeldSlot:
        """Take a slot at once. Raises ShareExhausted."""
        try:
            self.shares.take(holder)
        except ShareExhausted as error:
            self.refused[error.bound] += 1
            raise
        return HeldSlot(self, holder)

    async def acquire(self, holder: Holder, *, wait_s: float) -> HeldSlot:
        """Take a slot, in turn. Raises ShareExhausted when too many wait already, or after `wait_s`."""
        if self.shares.exhausted_bound(holder):
            began = time.monotonic()
            await self._wait_for_turn(holder, wait_s)
            self.wait_seconds.observe(time.monotonic() - began)
        else:
            self.shares.add(holder)
        return HeldSlot(self, holder)

    def serve(self) -> None:
        """Give free slots to those that wait."""
        while (ticket := self.shares.next()) is not None:
            entered = self._entered[ticket]
            if not entered.done():  # otherwise it is being cancelled and gives the slot back itself
                entered.set_result(None)

    async def _wait_for_turn(self, holder: Holder, wait_s: float) -> None:
        try:
            self.queued.take(holder)
        except ShareExhausted as error:
            self.refused[error.bound] += 1
            raise
        ticket = self.shares.wait(holder)
        entered = self._entered[ticket] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(wait_s):
                await entered
        except TimeoutError:
            if self.shares.withdraw(ticket):
                refusal = self.shares.refusal(holder, f", and none got free within {wait_s:g} s")
                self.refused[refusal.bound] += 1
                raise refusal from None
            # The slot was given at the last moment.
        except asyncio.CancelledError:
            if not self.shares.withdraw(ticket):
                self.shares.release(holder)
                self.serve()
            raise
        finally:
            del self._entered[ticket]
            self.queued.release(holder)
