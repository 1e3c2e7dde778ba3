"""One door for all partitions of a process: starts wait here for a place, each at most its time.

A start that has to wait is a command that is not decided yet: it is in the log, so nothing is lost with this process,
and whoever owns the partition next reads the commands again and lets them wait in their old order. What is at work is
not kept anywhere: the desk tells it from the events it sees and, after a take-over, from the runs it finds.

Before: services/runtime/run/command_handler.py with a StartRun. After: core/admission.py says who goes in;
services/runtime/run/command_handler.py decides it then.
"""

import asyncio
import time
from collections import Counter

from loomlog.connectors.configuration import ProcessConfiguration
from loomlog.connectors.configuration.concurrency_limits import resolve_limits
from loomlog.services.core.admission import PROVIDER_FULL, AdmissionController, AdmissionLimits, AdmissionRefused, Slot
from loomlog.services.stream.histogram import CALL_SECONDS, Histogram


class AdmissionQueue:
    """`wait_s` is how long a start waits for a place, `provider_wait_s` when its provider is full."""

    def __init__(self, limits: AdmissionLimits, *, wait_s: float, provider_wait_s: float) -> None:
        self.controller = AdmissionController(limits)
        self.has_provider_limits = bool(limits.providers)
        """Whether the provider of a run makes a difference."""
        self.wait_seconds = Histogram(CALL_SECONDS)
        """Of starts that had to wait and were let in."""
        self.refused: Counter[str] = Counter()
        """By code."""
        self._wait_s = wait_s
        self._provider_wait_s = provider_wait_s
        self._waiters: dict[str, asyncio.Future[None]] = {}

    def mark_active(self, run_id: str, slot: Slot) -> None:
        """Something of the run is due."""
        self.controller.admit(run_id, slot)

    def mark_idle(self, run_id: str) -> None:
        """Nothing of it is due, for now or for ever."""
        if self.controller.release(run_id):
            self._admit_waiting()

    async def wait_for_slot(self, run_id: str, slot: Slot) -> AdmissionRefused | None:
        """Until the run may begin; then it is inside, and leaves by `rests`. Or why it may not."""
        began = time.monotonic()
        why = await self._enqueue_and_wait(run_id, slot)
        if why is None:
            self.wait_seconds.observe(time.monotonic() - began)
        else:
            self.refused[why.code] += 1
        return why

    async def _enqueue_and_wait(self, run_id: str, slot: Slot) -> AdmissionRefused | None:
        turned_away = self.controller.enqueue(run_id, slot)
        if turned_away is not None:
            return turned_away
        is_full = self.controller.refusal_for(slot).code == PROVIDER_FULL
        entered = self._waiters[run_id] = asyncio.get_running_loop().create_future()
        self._admit_waiting()
        try:
            async with asyncio.timeout(self._provider_wait_s if is_full else self._wait_s):
                await entered
        except TimeoutError:
            if entered.done() and not entered.cancelled():
                return None  # let in at the last moment
            why = self.controller.refusal_for(slot)
            self.controller.withdraw(run_id)
            return why
        except asyncio.CancelledError:
            # Its partition is somebody else's now.
            self.controller.withdraw(run_id)
            self.mark_idle(run_id)
            raise
        finally:
            self._waiters.pop(run_id, None)
        return None

    def _admit_waiting(self) -> None:
        if not self._waiters:
            return
        while run_id := self.controller.admit_next():
            entered = self._waiters.get(run_id)
            if entered is not None and not entered.done():
                entered.set_result(None)


def build_admission_queue(loaded: ProcessConfiguration) -> AdmissionQueue:
    """How many runs are at work in this process."""
    bounds = resolve_limits(loaded.configuration, loaded.settings)
    providers = loaded.configuration.providers
    return AdmissionQueue(
        AdmissionLimits(
            runs=bounds.max_concurrent_runs,
            queue=bounds.max_queue_depth,
            per_user=bounds.max_concurrent_runs_per_user,
            providers={name: block.max_concurrent for name, block in providers.items() if block.max_concurrent},
            provider_queue=bounds.provider_queue_depth,
        ),
        wait_s=bounds.queue_timeout_ms / 1000,
        provider_wait_s=bounds.provider_queue_timeout_ms / 1000,
    )
