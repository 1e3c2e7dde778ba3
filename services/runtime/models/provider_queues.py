"""Slots of a provider: a bounded number of concurrent model calls; the others wait for a slot, up to a timeout.

    free slot                 taken at once; the usual call pays nothing else
    none free                 the call waits: tenants in turn, their users in turn (services/core/fair_queue.py)
    queue full, or timeout    PROVIDER_FULL, a transient failure of ours and not of the provider: waited for like a
                              rate limit without using up a try of the run; then the run falls back or ends with that
                              code

A call that waits is an intent in the log and a task here, so nothing is lost with this process: the next owner makes it
again. Starts of runs have a queue of their own before this one (services/runtime/admission/queue.py); in addition to
them, children, forks and runs that fell back wait here, which do not pass that queue.

Before: model_calls.py. After: the call. services/runtime/telemetry/exposition.py exports the metrics.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType

from loomlog.connectors.errors import Transient
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.fair_queue import FairQueue
from loomlog.services.stream.histogram import CALL_SECONDS, Histogram

DEFAULT_SLOTS = 1_000
"""Concurrent calls of a provider without a configured bound: as many as there are runs in progress, each of which has
one, unless `max_concurrent_runs` is higher (parity: no bound).
"""
DEFAULT_WAIT_S = 600.0
"""Seconds a call waits at such a provider. No refusal was configured, so it only keeps the wait from being endless."""
RETRY_AFTER_S = 5.0
"""Seconds after which a refused call may retry (parity: reference runtime 1.3)."""
FULL, LATE = "full", "late"
"""Reasons for a refusal: too many calls waited, or the call waited too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderQueueLimits:
    """Bounds of the wait for a slot of one provider: number of calls, and seconds for each."""

    depth: int = 4_000
    wait_s: float = 30.0


class ProviderQueue:
    """Queue of one provider in this process. `slots` 0: no bound is configured."""

    def __init__(self, provider: str, *, slots: int = 0, limits: ProviderQueueLimits | None = None) -> None:
        bounds = limits or ProviderQueueLimits()
        self.provider = provider
        self.slots = slots or DEFAULT_SLOTS
        self.depth = bounds.depth
        self.wait_s = bounds.wait_s if slots else max(bounds.wait_s, DEFAULT_WAIT_S)
        self.in_use = 0
        self.refused: Counter[str] = Counter()
        self.wait_seconds = Histogram(CALL_SECONDS)
        """Wait times of calls that had to wait and got a slot."""
        self._queue: FairQueue[int] = FairQueue()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._last_ticket = 0

    @property
    def waiting(self) -> int:
        """Number of calls that wait now."""
        return len(self._queue)

    def slot(self, tenant: str, user: str) -> "ProviderSlot":
        """Return a slot as an async context manager; entering it raises Transient when there is no slot in time."""
        return ProviderSlot(self, tenant, user)

    def try_acquire(self) -> bool:
        """Take a slot if one is free. No call waits then: a released slot goes to the next waiting call."""
        if self.in_use < self.slots:
            self.in_use += 1
            return True
        return False

    async def acquire(self, tenant: str, user: str) -> None:
        """Wait for a slot; it is returned with `release`. Raises Transient."""
        if self.try_acquire():
            return
        if len(self._queue) >= self.depth:
            raise self._refusal(FULL)
        began = time.monotonic()
        await self._wait_for_turn(tenant, user)
        self.wait_seconds.observe(time.monotonic() - began)

    async def _wait_for_turn(self, tenant: str, user: str) -> None:
        self._last_ticket += 1
        ticket = self._last_ticket
        entered = self._waiters[ticket] = asyncio.get_running_loop().create_future()
        self._queue.join(ticket, tenant, user)
        try:
            async with asyncio.timeout(self.wait_s):
                await entered
        except TimeoutError as error:
            if self._queue.leave(ticket):
                raise self._refusal(LATE) from error
            # The slot was granted at the last moment.
        except asyncio.CancelledError:
            if not self._queue.leave(ticket):
                self.release()
            raise
        finally:
            del self._waiters[ticket]

    def release(self) -> None:
        """Release the slot to the next waiting call."""
        ticket = self._queue.next()
        if ticket is None:
            self.in_use -= 1
            return
        entered = self._waiters[ticket]
        if not entered.done():  # otherwise it is being cancelled and releases the slot itself
            entered.set_result(None)

    def _refusal(self, reason: str) -> Transient:
        self.refused[reason] += 1
        text = (
            f"{self.depth} calls wait already"
            if reason == FULL
            else f"none of them got free within {self.wait_s:g} s while {len(self._queue)} more wait"
        )
        return Transient(
            f"{self.provider}: {PROVIDER_FULL}: all {self.slots} places are taken, and {text}",
            kind=PROVIDER_FULL,
            retry_after_s=RETRY_AFTER_S,
        )


class ProviderSlot:
    """A slot of a provider while a call has it."""

    __slots__ = ("_queue", "_tenant", "_user")

    def __init__(self, queue: ProviderQueue, tenant: str, user: str) -> None:
        self._queue = queue
        self._tenant = tenant
        self._user = user

    async def __aenter__(self) -> None:
        if not self._queue.try_acquire():  # usually a slot is free, and no other coroutine is needed
            await self._queue.acquire(self._tenant, self._user)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.release()
