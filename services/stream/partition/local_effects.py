"""Effects that concern other aggregates of the same partition: carried out here, as orders to them, and call nothing.

A run starts another, tells its parent how it ended, cancels its children (decision 23). The event that asks for it is
in the log by then; the desk turns the effect into orders, which are decided like any other. After a take-over each
state is asked what of this may not have been carried out: the same effect again changes nothing.

Before: the flusher has what became due. After: the desk makes orders, decisions.py decides them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from loomlog.services.stream.context import CommandHandler, HostContext, PendingDecision
from loomlog.services.stream.partition.decisions import DecisionExecutor
from loomlog.services.stream.partition.lookups import PendingLookups
from loomlog.services.stream.partition.partition import Aggregate, Partition


class LocalEffects:
    """Carries out the local effects of one partition while it is held."""

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
        """A local effect that became due, with the state after the decision that asked for it."""
        self._lookups.begin_eagerly(self._execute(aggregate, effect, state))

    def start_pending(self, aggregate: Aggregate) -> None:
        """After a take-over: carry out what may not have been."""
        if not aggregate.quarantined:
            for effect in self._context.family.pending_local_effects(aggregate.state):
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
                continue  # once released it is looked at again
            try:
                order = prepared.command()
            except Exception as error:  # noqa: BLE001 - as in _execute
                self._executor.quarantine(aggregate, error, at_ms=self._context.clock_ms(), cause_id=prepared.cause_id)
                continue
            self._executor.submit(aggregate, order, at_ms=self._context.clock_ms(), cause_id=prepared.cause_id)
