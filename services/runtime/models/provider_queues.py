"""Places of a provider: so many model calls at once, the others wait for their turn, each at most its time.

    free place          taken at once; the usual call pays nothing else
    none free           the call waits: tenants in turn, their users in turn (services/core/fair_queue.py)
    queue full, or its time is up    PROVIDER_FULL, a transient failure: between us and the provider, so waited for like
                        a rate limit and no try of the run's; then the run falls back or ends with that code

A call that waits is an intent in the log and a task here, so nothing is lost with this process: the next owner makes
it again. Starts of runs have a queue of their own before this one (services/runtime/admission/queue.py); what meets
here besides them are children, forks and runs that fell back, none of which asks for a place there.

Before: model_calls.py. After: the call. services/runtime/telemetry/exposition.py shows the figures.
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
"""Calls at once with a provider for which nobody named a bound: as many as runs at work, of which each has one, unless
`max_concurrent_runs` says more (parity: no bound)."""
DEFAULT_WAIT_S = 600.0
"""How long a call waits there. Nobody asked to be refused, so it only keeps the wait from being endless."""
RETRY_AFTER_S = 5.0
"""What whoever was turned away is told to wait (parity: reference runtime 1.3)."""
FULL, LATE = "full", "late"
"""Why a call was turned away: too many waited, or it waited too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderQueueLimits:
    """Bounds of waiting for one provider's place: how many calls, and how long each."""

    depth: int = 4_000
    wait_s: float = 30.0


class ProviderQueue:
    """Of one provider in this process. `places` 0: nobody named a bound."""

    def __init__(self, provider: str, *, slots: int = 0, limits: ProviderQueueLimits | None = None) -> None:
        bounds = limits or ProviderQueueLimits()
        self.provider = provider
        self.slots = slots or DEFAULT_SLOTS
        self.depth = bounds.depth
        self.wait_s = bounds.wait_s if slots else max(bounds.wait_s, DEFAULT_WAIT_S)
        self.in_use = 0
        self.refused: Counter[str] = Counter()
        self.wait_seconds = Histogram(CALL_SECONDS)
        """Of calls that had to wait and got a place."""
        self._queue: FairQueue[int] = FairQueue()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._last_ticket = 0

    @property
    def waiting(self) -> int:
        """Calls that wait now."""
        return len(self._queue)

    def slot(self, tenant: str, user: str) -> "ProviderSlot":
        """A place for the length of an `async with`, which raises Transient when there is none in time."""
        return ProviderSlot(self, tenant, user)

    def try_acquire(self) -> bool:
        """A place if one is free. Nobody waits then: a place that gets free goes to whoever waits."""
        if self.in_use < self.slots:
            self.in_use += 1
            return True
        return False

    async def acquire(self, tenant: str, user: str) -> None:
        """Until there is a place; it is given back with `leave`. Raises Transient."""
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
            # It was let in at the last moment.
        except asyncio.CancelledError:
            if not self._queue.leave(ticket):
                self.release()
            raise
        finally:
            del self._waiters[ticket]

    def release(self) -> None:
        """The place is free for whoever is next."""
        ticket = self._queue.next()
        if ticket is None:
            self.in_use -= 1
            return
        entered = self._waiters[ticket]
        if not entered.done():  # else it is being cancelled, and gives the place back itself
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
    """A place of a provider while a call has it."""

    __slots__ = ("_queue", "_tenant", "_user")

    def __init__(self, queue: ProviderQueue, tenant: str, user: str) -> None:
        self._queue = queue
        self._tenant = tenant
        self._user = user

    async def __aenter__(self) -> None:
        if not self._queue.try_acquire():  # mostly it is free, and no other coroutine is needed
            await self._queue.acquire(self._tenant, self._user)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.release()
