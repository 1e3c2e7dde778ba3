"""Admission queue for all partitions of a process: starts wait here for a run slot, each up to its timeout.

A start that has to wait is a command that is not decided yet: it is in the log, so nothing is lost with this process,
and the next owner of the partition reads the commands again and queues them in the same order. The set of active runs
is not stored anywhere: the command handler derives it from the events it sees and, after a takeover, from the live runs
it finds.

Before: services/runtime/run/command_handler.py with a StartRun. After: core/admission.py chooses the run to admit;
services/runtime/run/command_handler.py decides it then.
"""

import asyncio
import time
from collections import Counter

from loomlog.connectors.configuration.concurrency_limits import resolve_limits
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.core.admission import PROVIDER_FULL, AdmissionController, AdmissionLimits, AdmissionRefused, Slot
from loomlog.services.stream.histogram import CALL_SECONDS, Histogram


class AdmissionQueue:
    """Queue of starts. `wait_s` is the wait timeout in seconds, `provider_wait_s` the one when the provider is full."""

    def __init__(self, limits: AdmissionLimits, *, wait_s: float, provider_wait_s: float) -> None:
        self.controller = AdmissionController(limits)
        self.has_provider_limits = bool(limits.providers)
        """Whether the provider of a run matters for admission."""
        self.has_user_limit = bool(limits.per_user)
        """Whether runs that are idle matter for admission."""
        self.wait_seconds = Histogram(CALL_SECONDS)
        """Wait times of starts that had to wait and were admitted."""
        self.refused: Counter[str] = Counter()
        """Refused starts by code."""
        self._wait_s = wait_s
        self._provider_wait_s = provider_wait_s
        self._waiters: dict[str, asyncio.Future[None]] = {}

    def mark_active(self, run_id: str, slot: Slot) -> None:
        """Count the run as active: a call of it is due or under way."""
        self.controller.admit(run_id, slot)

    def mark_idle(self, run_id: str, slot: Slot) -> None:
        """Release the run's slot, and count the run for its user: it is parked or waits."""
        if self.controller.rest(run_id, slot):
            self._admit_waiting()

    def mark_ended(self, run_id: str) -> None:
        """Release the run's slot, and what it counts for its user: it has ended, is held, or is another process's."""
        if self.controller.release(run_id) or self.has_user_limit:
            self._admit_waiting()

    async def wait_for_slot(self, run_id: str, slot: Slot) -> AdmissionRefused | None:
        """Wait until the run has a slot, which others release; return the refusal if it gets none."""
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
                return None  # admitted at the last moment
            why = self.controller.refusal_for(slot)
            self.controller.withdraw(run_id)
            return why
        except asyncio.CancelledError:
            # Its partition has another owner now.
            self.controller.withdraw(run_id)
            self.mark_ended(run_id)
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
    """Build the admission queue from the configured limits on active runs."""
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
