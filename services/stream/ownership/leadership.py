"""One partition for as long as it is held: from the fold up to our Claim until it is lost or given up.

Everything here belongs to one term and is thrown away with it: the fold, the desk, the commands that wait, the tasks
that look something up. So nothing in it asks whether the partition is held. First it recovers what was under way with
the former owner; then commands, results, alarms and standing orders come in and decisions wait in the Partition.

Before: owner.py has claimed and folded. After: services/stream/partition/command_intake.py and
services/stream/partition/local_effects.py make orders, services/stream/partition/decisions.py decides them.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from loomlog.services.stream.context import CommandHandler, HostContext, HostMetrics
from loomlog.services.stream.ownership.inbox import (
    CallReturned,
    CallsUnstarted,
    Message,
    TimerFired,
    WidePausesChanged,
)
from loomlog.services.stream.partition.command_intake import CommandIntake
from loomlog.services.stream.partition.decisions import DecisionExecutor, Wake
from loomlog.services.stream.partition.local_effects import LocalEffects
from loomlog.services.stream.partition.lookups import PendingLookups
from loomlog.services.stream.partition.partition import Aggregate, Partition, ReadyEffect
from loomlog.services.stream.partition.timers import Timers

HANDOVER_GRACE_S = 2.0
"""What a former owner that may be alive gets to hand over results whose loss costs something. Most tool calls and short
turns end within it; whoever waits for the run waits so long at a rebalance, and not at all after a death."""


class Leadership:
    """Holds one partition. `end` is called once, and nothing after it."""

    def __init__(
        self,
        partition: Partition,
        handler: CommandHandler,
        context: HostContext,
        *,
        wake: Wake,
        timers: Timers,
        metrics: HostMetrics,
    ) -> None:
        self.partition = partition
        self.handler = handler
        self._context = context
        self._metrics = metrics
        self._lookups = PendingLookups(context.effect_runner.group)
        self._executor = DecisionExecutor(partition, context, wake=wake, timers=timers, metrics=metrics)
        self.intake = CommandIntake(
            partition, handler, context, executor=self._executor, lookups=self._lookups, metrics=metrics
        )
        self._local_effects = LocalEffects(partition, handler, context, executor=self._executor, lookups=self._lookups)

    # --- what the former owner left ----------------------------------------------------------------------------------

    def begin(self, live: Sequence[Aggregate], late: Sequence[CallReturned], *, may_be_alive: bool) -> None:
        """Hold what is live and recover its calls; `late` are results of ours that no owner has recorded.

        `may_be_alive`: somebody before us may still have calls under way, and hands over what they give.
        """
        awaited: dict[str, frozenset[Hashable]] = {}
        for aggregate in live:
            ours = frozenset(returned.result.key for returned in late if returned.aggregate == aggregate.id)
            waits = self._recover(aggregate, ours, may_be_alive=may_be_alive)
            if waits:
                awaited[aggregate.id] = waits
        for returned in late:
            self.receive(returned)
        if awaited:
            self._lookups.begin(self._recover_later(awaited))
        for aggregate in live:
            self._local_effects.start_pending(aggregate)

    def _recover(
        self, aggregate: Aggregate, returned: frozenset[Hashable], *, may_be_alive: bool
    ) -> frozenset[Hashable]:
        """Hold it and recover its calls; gives those that are left to a former owner for a while."""
        context = self._context
        self.partition.aggregates[aggregate.id] = aggregate
        self.handler.live_found(aggregate)
        if aggregate.quarantined:
            self._executor.is_quarantined(aggregate, aggregate.quarantined)
            return frozenset()
        aggregate.quarantined = context.family.quarantined(aggregate.state)
        if aggregate.quarantined:
            self._metrics.quarantined += 1
            return frozenset()
        running = context.effect_runner.running(aggregate.id) | returned
        self._executor.set_timer(aggregate)
        waits = context.family.costly_call_keys(aggregate.state) - running if may_be_alive else frozenset()
        order = context.family.recover(context.clock_ms(), running | waits, self.handler.wide_pauses_command(aggregate))
        self._executor.submit(aggregate, order, at_ms=context.clock_ms())
        return waits

    async def _recover_later(self, awaited: Mapping[str, frozenset[Hashable]]) -> None:
        """Recover what no former owner has handed over in time."""
        context = self._context
        await asyncio.sleep(HANDOVER_GRACE_S)
        for name, waits in awaited.items():
            aggregate = self._decide_safely(name)
            if aggregate is None:
                continue
            # What was begun here since is not lost, also while its intent is on the wire.
            ours = context.family.open_calls(aggregate.state) - waits
            order = context.family.recover(context.clock_ms(), context.effect_runner.running(name) | ours)
            self._executor.submit(aggregate, order, at_ms=context.clock_ms())

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """One message for this partition. Decides at once, or when its lookup is done."""
        match message:
            case CallReturned(aggregate=name, result=result):
                self._receive_result(name, result)
            case ReadyEffect(aggregate=aggregate, effect=effect, state=state):
                self._local_effects.start(aggregate, effect, state)
            case TimerFired(aggregate=name):
                self._fire_timer(name)
            case CallsUnstarted(calls=calls):
                self._record_unstarted_calls(calls)
            case WidePausesChanged():
                self._apply_wide_pauses()
            case record:
                self.intake.take(record)

    def _receive_result(self, name: str, result: Any) -> None:
        """The result of a call. Of no use when its aggregate is over."""
        aggregate = self._decide_safely(name)
        if aggregate is not None:
            self._executor.submit(aggregate, result, at_ms=self._context.clock_ms(), is_result=True)

    def _record_unstarted_calls(self, calls: Mapping[str, frozenset[Hashable]]) -> None:
        """Write down which calls of a planned stop were due and not begun, by aggregate."""
        context = self._context
        for name, keys in calls.items():
            aggregate = self._decide_safely(name)
            if aggregate is not None:
                order = context.family.record_unstarted_calls(context.clock_ms(), keys)
                self._executor.submit(aggregate, order, at_ms=context.clock_ms())

    def _fire_timer(self, name: str) -> None:
        """An alarm of the aggregate, perhaps a former one."""
        aggregate = self.partition.aggregates.get(name)
        if aggregate is None or not aggregate.timer_at_ms:
            return
        now_ms = self._context.clock_ms()
        if aggregate.timer_at_ms > now_ms:
            return  # a former one; or the clock went back, and the next look is the one that was set then
        aggregate.timer_at_ms = 0
        if not aggregate.quarantined:  # once released, what is decided then sets it again
            self._executor.submit(aggregate, self._context.family.timer_fired(now_ms), at_ms=now_ms)

    def _apply_wide_pauses(self) -> None:
        """Something wider than the aggregates has changed: each does what that asks of it now. Idempotent."""
        for aggregate in list(self.partition.aggregates.values()):
            order = None if aggregate.quarantined else self.handler.wide_pauses_command(aggregate)
            if order is not None:
                self._executor.submit(aggregate, order, at_ms=self._context.clock_ms())

    def _decide_safely(self, name: str) -> Aggregate | None:
        """The aggregate, when it is live and not quarantined."""
        aggregate = self.partition.aggregates.get(name)
        return None if aggregate is None or aggregate.quarantined else aggregate

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> list[CallReturned]:
        """Forget everything; gives the results that were decided on and may not be in the log."""
        self._lookups.end()
        self.handler.aggregate_closed()
        return [CallReturned(*result) for result in self.partition.unacknowledged_results()]
