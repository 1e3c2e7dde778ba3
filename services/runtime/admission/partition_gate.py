"""Admission for one partition: tracks its active runs, and holds back starts until a run slot is free.

A start that would be refused anyway, or begins paused, does not wait. The others are decided once admitted, or refused
when admission fails. Before: services/runtime/run/command_handler.py prepares a StartRun. After: queue.py keeps the
process-wide queue.
"""

import asyncio
from typing import Any

from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.records import replace
from loomlog.services.core.admission import Slot
from loomlog.services.core.run.commands import CommandRefusal, StartCommand
from loomlog.services.core.run.lifecycle.activity import ACTIVITY_EVENTS, is_active, is_idle
from loomlog.services.core.run.lifecycle.start import start_refusal
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Partition


class PartitionAdmission:
    """Admission for one partition. With `queue` None every start is admitted at once."""

    def __init__(self, queue: AdmissionQueue | None) -> None:
        self._queue = queue
        self._counted: dict[str, bool] = {}
        """Runs that count here, and whether they are active. The others count for their user, where users have a limit;
        those that have rested since before a take-over are not known here.
        """

    def on_decided(self, aggregate: Aggregate, event: Any) -> None:
        """Handle a decided event; `aggregate` is in the state after its whole decision."""
        if self._queue is not None and type(event) in ACTIVITY_EVENTS:
            self.update_activity(aggregate)

    def update_activity(self, aggregate: Aggregate) -> None:
        """Mark the run active or idle according to its state."""
        if self._queue is None:
            return
        active = is_active(aggregate.state)
        if not active and not (self._queue.has_user_limit and is_idle(aggregate.state)):
            self._release(aggregate.id)
        elif self._counted.get(aggregate.id) is not active:
            self._counted[aggregate.id] = active
            mark = self._queue.mark_active if active else self._queue.mark_idle
            mark(aggregate.id, _slot_of(aggregate))

    def close(self) -> None:
        """Release all slots: the partition is no longer held, and its runs are active elsewhere."""
        for run_id in list(self._counted):
            self._release(run_id)

    async def admit_start(self, prepared: PendingDecision, command: StartRun, partition: Partition) -> PendingDecision:
        """Return the start once its run has a slot."""
        if self._queue is None or not self._must_wait(prepared, command, partition):
            return prepared
        return await self._wait_for_slot(self._queue, prepared, partition)

    def _must_wait(self, prepared: PendingDecision, command: StartRun, partition: Partition) -> bool:
        """Return whether the start must wait. Most do not, and for those the check costs a microsecond."""
        aggregate, door = prepared.aggregate, self._queue
        if door is None or aggregate is None or prepared.command is None or aggregate.id in partition.aggregates:
            return False  # already handled, or nothing to decide
        provider = ""
        if door.has_provider_limits:
            definition = prepared.command().definition
            provider = "" if definition is None else definition.provider
        place = Slot(tenant=aggregate.tenant, user_id=command.user_id, provider=provider)
        return not door.controller.has_capacity(place)

    async def _wait_for_slot(
        self, queue: AdmissionQueue, prepared: PendingDecision, partition: Partition
    ) -> PendingDecision:
        aggregate, order = prepared.aggregate, prepared.command
        assert aggregate is not None
        assert order is not None
        trial: StartCommand = order()
        if start_refusal(trial, aggregate.state.history) is not None or trial.pauses or trial.definition is None:
            return prepared
        place = Slot(tenant=aggregate.tenant, user_id=trial.command.user_id, provider=trial.definition.provider)
        await continue_in_task()
        turned_away = await queue.wait_for_slot(aggregate.id, place)
        if turned_away is None:
            self._counted[aggregate.id] = True
            # The start is decided right after this; if that begins no run, the slot must be released.
            asyncio.get_running_loop().call_soon(self._release_if_unstarted, aggregate.id, partition)
            return prepared
        why = CommandRefusal(
            code=turned_away.code, message=turned_away.message, about=turned_away.about, cap=turned_away.cap
        )
        prepared.command = lambda: replace(order(), admission_refusal=why)
        return prepared

    def _release_if_unstarted(self, run_id: str, partition: Partition) -> None:
        if run_id not in partition.aggregates:
            self._release(run_id)

    def _release(self, run_id: str) -> None:
        if self._counted.pop(run_id, None) is not None:
            assert self._queue is not None
            self._queue.mark_ended(run_id)


def _slot_of(aggregate: Aggregate) -> Slot:
    facts = aggregate.state.facts
    return Slot(tenant=aggregate.tenant, user_id=facts.user_id, provider=facts.definition.provider)
