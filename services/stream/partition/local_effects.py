"""Effects on other aggregates of the same partition: executed here, as commands to them, without calls.

A run starts another, reports to its parent, cancels its children (decision 23). The event that requests it is in the
log by then; the command handler turns the effect into commands, which are decided like any other. After a takeover the
effects whose execution is unknown are repeated: the same effect again changes nothing.

Before: the flusher has the effects that became due. After: the command handler prepares commands, decisions.py decides
them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from loomlog.services.stream.context import CommandHandler, HostContext, PendingDecision
from loomlog.services.stream.partition.decisions import DecisionExecutor
from loomlog.services.stream.partition.lookups import PendingLookups
from loomlog.services.stream.partition.partition import Aggregate, Partition


class LocalEffects:
    """Executes the local effects of one partition under one leadership."""

    def __init__(
        self,
        partition: Partition,
        handler: CommandHandler,
        context: HostContext,
        *,
        executor: DecisionExecutor,
        lookups: PendingLookups,
    ) -> None:
        self._partition = partition
        self._handler = handler
        self._context = context
        self._executor = executor
        self._lookups = lookups

    def start(self, aggregate: Aggregate, effect: Any, state: Any) -> None:
        """Execute a local effect that became due, with the state after the decision that requested it."""
        self._lookups.begin_eagerly(self._execute(aggregate, effect, state))

    def start_pending(self, aggregate: Aggregate) -> None:
        """After a takeover: execute the effects whose execution is unknown."""
        if not aggregate.quarantined:
            for effect in self._context.family.local.pending_local_effects(aggregate.state):
                self.start(aggregate, effect, aggregate.state)

    async def _execute(self, aggregate: Aggregate, effect: Any, state: Any) -> None:
        try:
            prepared = await self._lookups.lookup_with_retry(
                partial(self._handler.prepare_local_effect, aggregate, effect, state, self._partition),
                waits=lambda: f"{self._context.family.name} {aggregate.id}: {type(effect).__name__}",
            )
        except Exception as error:  # noqa: BLE001 - a broken rule parks one aggregate, never the partition
            self._executor.quarantine(aggregate, error, at_ms=self._context.clock_ms())
            return
        self._submit(prepared)

    def _submit(self, orders: Sequence[PendingDecision]) -> None:
        for prepared in orders:
            aggregate = prepared.aggregate
            if aggregate is None or prepared.command is None:
                continue
            if aggregate.quarantined and not prepared.allowed_in_quarantine:
                continue  # its effects are repeated once it is released
            try:
                order = prepared.command()
            except Exception as error:  # noqa: BLE001 - as in _execute
                self._executor.quarantine(aggregate, error, at_ms=self._context.clock_ms(), cause_id=prepared.cause_id)
                continue
            self._executor.submit(aggregate, order, at_ms=self._context.clock_ms(), cause_id=prepared.cause_id)
