"""Slots of a provider: a bounded number of concurrent model calls; the others wait for a slot, up to a timeout.

    free slot                 taken at once; the usual call pays nothing else
    none free                 the call waits: tenants in turn, their users in turn (services/stream/shared_slots.py)
    share of the tenant       three quarters of the slots, so others find one free (services/core/shares.py)
    queue full, or timeout    PROVIDER_FULL, a transient failure of ours and not of the provider: waited for like a
                              rate limit without using up a try of the run; then the run falls back or ends with that
                              code

A call that waits is an intent in the log and a task here, so nothing is lost with this process: the next owner makes it
again. Starts of runs have a queue of their own before this one (services/runtime/admission/queue.py); in addition to
them, children, forks and runs that fell back wait here, which do not pass that queue.

Before: model_calls.py. After: the call. services/runtime/telemetry/exposition.py exports the metrics.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loomlog.connectors.errors import Transient
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.shares import Holder, ShareExhausted, ShareLimits
from loomlog.services.stream.histogram import Histogram
from loomlog.services.stream.shared_slots import HeldSlot, SharedSlots

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
        self.wait_s = bounds.wait_s if slots else max(bounds.wait_s, DEFAULT_WAIT_S)
        self.refused: Counter[str] = Counter()
        self._slots = SharedSlots(
            f"calls of {provider}", ShareLimits.in_turn(self.slots), waiting=ShareLimits.in_turn(max(bounds.depth, 1))
        )

    @property
    def in_use(self) -> int:
        return self._slots.shares.in_use

    @property
    def waiting(self) -> int:
        """Number of calls that wait now."""
        return self._slots.shares.waiting

    @property
    def wait_seconds(self) -> Histogram:
        """Wait times of calls that had to wait and got a slot."""
        return self._slots.wait_seconds

    @asynccontextmanager
    async def slot(self, tenant: str, user: str) -> AsyncIterator[None]:
        """Hold a slot. Raises Transient when there is none in time."""
        with await self.acquire(Holder(tenant=tenant, principal=user)):
            yield

    async def acquire(self, holder: Holder) -> HeldSlot:
        """Wait for a slot. Raises Transient."""
        try:
            return await self._slots.acquire(holder, wait_s=self.wait_s)
        except ShareExhausted as error:
            self.refused[LATE if error.resource == self._slots.shares.resource else FULL] += 1
            text = f"{self.provider}: {PROVIDER_FULL}: {error}"
            raise Transient(text, kind=PROVIDER_FULL, retry_after_s=RETRY_AFTER_S) from error
