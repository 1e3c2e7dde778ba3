"""One partition under one term: from the fold up to our Claim until it is lost or released.

Everything here is discarded with the term: the fold, the command handler, waiting commands, lookups. So nothing in it
checks whether the partition is owned. First it recovers the calls of the former owner; then commands, results, timers
and pauses come in and decisions wait in the Partition.

Before: owner.py has claimed and folded. After: services/stream/partition/command_intake.py and
services/stream/partition/local_effects.py prepare commands, services/stream/partition/decisions.py decides them.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from sys import intern
from typing import Any

from loomlog.services.stream.context import CommandHandler, HostContext, HostMetrics
from loomlog.services.stream.ownership.inbox import (
    Asked,
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
from loomlog.services.stream.partition.resting import Resting, StateLoader, is_resting
from loomlog.services.stream.partition.timers import Timers

HANDOVER_GRACE_S = 2.0
"""Grace for a former owner that may be alive to forward results whose loss costs something. Most tool calls and short
turns end within it; runs wait this long at a rebalance, and not at all after a death.
"""

IDLE_MAX = 500
"""Aggregates of a partition that might rest and keep their state for a while; 3 MB of short conversations."""


class Leadership:
    """Owns one partition for one term. `end` is called once, and nothing after it."""

    def __init__(
        self,
        partition: Partition,
        handler: CommandHandler,
        context: HostContext,
        *,
        loader: StateLoader,
        wake: Wake,
        timers: Timers,
        metrics: HostMetrics,
    ) -> None:
        self.partition = partition
        self.handler = handler
        self._context = context
        self._metrics = metrics
        self._timers = timers
        self._loader = loader
        self._idle: dict[str, int] = {}
        """Aggregates that might rest, with their seq, when let_idle_rest was last due."""
        self.has_idle = False
        """Whether aggregates might rest that do not yet."""
        self.unsaved_idle = 0
        """Number of aggregates that might rest and have no snapshot of their present state, at the last look."""
        self._lookups = PendingLookups(context.effect_runner.group)
        self._executor = DecisionExecutor(partition, context, wake=wake, timers=timers, metrics=metrics)
        self.intake = CommandIntake(
            partition,
            handler,
            context,
            executor=self._executor,
            lookups=self._lookups,
            loader=loader,
            metrics=metrics,
        )
        self._local_effects = LocalEffects(partition, handler, context, executor=self._executor, lookups=self._lookups)

    # --- recovery ----------------------------------------------------------------------------------------------------

    def begin(self, live: Sequence[Aggregate], late: Sequence[CallReturned], *, may_be_alive: bool) -> None:
        """Take the live aggregates and recover their calls; `late` are our own results that no owner has recorded.

        `may_be_alive`: a former owner may still have calls under way, and forwards their results.
        """
        awaited: dict[str, frozenset[Hashable]] = {}
        resting = [aggregate for aggregate in live if is_resting(aggregate)]
        for aggregate in resting:
            self._take_resting(aggregate)
        live = [aggregate for aggregate in live if not is_resting(aggregate)]
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
        self._pause_resting(resting)

    def _take_resting(self, aggregate: Aggregate) -> None:
        """Take an aggregate that rests: nothing of it is under way."""
        self.partition.aggregates[aggregate.id] = aggregate
        self.handler.live_found(aggregate)
        if aggregate.timer_at_ms:
            self._timers.set(aggregate.timer_at_ms, self.partition.number, aggregate.id)

    def _recover(
        self, aggregate: Aggregate, returned: frozenset[Hashable], *, may_be_alive: bool
    ) -> frozenset[Hashable]:
        """Take an aggregate and recover its calls; returns those that are left to a former owner for a while."""
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
        waits = context.family.effects.costly_call_keys(aggregate.state) - running if may_be_alive else frozenset()
        order = context.family.effects.recover(
            context.clock_ms(), running | waits, self.handler.wide_pauses_command(aggregate)
        )
        if order is not None:
            self._executor.submit(aggregate, order, at_ms=context.clock_ms())
        return waits

    async def _recover_later(self, awaited: Mapping[str, frozenset[Hashable]]) -> None:
        """Recover what no former owner has forwarded in time."""
        context = self._context
        await asyncio.sleep(HANDOVER_GRACE_S)
        for name, waits in awaited.items():
            aggregate = self._decide_safely(name)
            if aggregate is None:
                continue
            # Calls started here since are not lost, also while their intent is on the wire.
            ours = context.family.effects.open_calls(aggregate.state) - waits
            order = context.family.effects.recover(context.clock_ms(), context.effect_runner.running(name) | ours)
            self._executor.submit(aggregate, order, at_ms=context.clock_ms())

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """Handle one message for this partition. Decides at once, or when its lookup is done."""
        match message:
            case CallReturned(aggregate=name, result=result):
                self._receive_result(name, result)
            case ReadyEffect(aggregate=aggregate, effect=effect, state=state):
                self._local_effects.start(aggregate, effect, state)
            case Asked(record=record, command=command):
                self.intake.ask(record, command)
            case TimerFired(aggregate=name):
                self._fire_timer(name)
            case CallsUnstarted(calls=calls):
                self._record_unstarted_calls(calls)
            case WidePausesChanged():
                self._apply_wide_pauses()
            case topic_record:
                self.intake.take(topic_record)

    def _receive_result(self, name: str, result: Any) -> None:
        """Decide on the result of a call; dropped if its aggregate has ended."""
        aggregate = self._decide_safely(name)
        if aggregate is not None:
            self._executor.submit(aggregate, result, at_ms=self._context.clock_ms(), is_result=True)

    def _record_unstarted_calls(self, calls: Mapping[str, frozenset[Hashable]]) -> None:
        """Record the calls of a planned stop that were due and not started, by aggregate."""
        context = self._context
        for name, keys in calls.items():
            aggregate = self._decide_safely(name)
            if aggregate is not None:
                order = context.family.effects.record_unstarted_calls(context.clock_ms(), keys)
                self._executor.submit(aggregate, order, at_ms=context.clock_ms())

    def _fire_timer(self, name: str) -> None:
        """Handle a timer of the aggregate, perhaps a former one."""
        aggregate = self.partition.aggregates.get(name)
        if aggregate is None:
            self.handler.timer_of_absent(name, self.intake)
            return
        if not aggregate.timer_at_ms:
            return
        now_ms = self._context.clock_ms()
        if aggregate.timer_at_ms > now_ms:
            return  # a former one; or the clock went back, and the timer set then is the next
        if is_resting(aggregate):
            self._lookups.begin(self._fire_when_loaded(aggregate))
            return
        aggregate.timer_at_ms = 0
        if not aggregate.quarantined:  # once released, the next decision sets it again
            self._executor.submit(aggregate, self._context.family.timer_fired(now_ms), at_ms=now_ms)

    def _apply_wide_pauses(self) -> None:
        """Apply a change of pauses wider than the aggregates to each of them. Idempotent."""
        aggregates = list(self.partition.aggregates.values())
        self._pause_resting([aggregate for aggregate in aggregates if is_resting(aggregate)])
        for aggregate in aggregates:
            if is_resting(aggregate):
                continue
            order = None if aggregate.quarantined else self.handler.wide_pauses_command(aggregate)
            if order is not None:
                self._executor.submit(aggregate, order, at_ms=self._context.clock_ms())

    def _decide_safely(self, name: str) -> Aggregate | None:
        """Return the aggregate if it is live and not quarantined. One that rests has no call under way."""
        aggregate = self.partition.aggregates.get(name)
        return None if aggregate is None or aggregate.quarantined or is_resting(aggregate) else aggregate

    # --- rest --------------------------------------------------------------------------------------------------------

    def let_idle_rest(self, *, is_due: bool = True) -> int:
        """Let those aggregates rest that might have rested when this was last due, and did not change since; returns
        their number. So one that was loaded for a command, or has just been answered, stays for a while; of more than
        IDLE_MAX the first ones do not.
        """
        idle: dict[str, Aggregate] = {}
        count = self.unsaved_idle = 0
        for aggregate in self.partition.aggregates.values():
            if is_resting(aggregate):
                continue
            resting = self.handler.resting(aggregate)
            if resting is None:
                continue
            # With a snapshot of its present state everything decided in it is in the log.
            if aggregate.snapshot_seq != aggregate.seq or aggregate.snapshot_offset < 0:
                self.unsaved_idle += aggregate.snapshot_seq != aggregate.seq
            elif is_due and self._idle.get(aggregate.id) == aggregate.seq:
                self._rest(aggregate, resting)
                count += 1
            else:
                idle[aggregate.id] = aggregate
        for aggregate in list(idle.values())[: max(0, len(idle) - IDLE_MAX)]:
            resting = self.handler.resting(idle.pop(aggregate.id))
            assert resting is not None, f"{aggregate.id} might rest a moment ago"
            self._rest(aggregate, resting)
            count += 1
        if is_due:
            self._idle = {name: aggregate.seq for name, aggregate in idle.items()}
        self.has_idle = bool(idle)
        return count

    def _rest(self, aggregate: Aggregate, resting: Resting) -> None:
        aggregate.state, aggregate.tenant = resting, intern(aggregate.tenant)
        self.handler.rested(aggregate)

    async def _load(self, aggregate: Aggregate) -> bool:
        """Load the aggregate's state, if it rests; False if it can be decided in no more."""
        while is_resting(aggregate):
            await self._lookups.lookup_with_retry(
                lambda: self._loader.load(aggregate),
                waits=lambda: f"{self._context.family.name} {aggregate.id}, which rests,",
            )
            if aggregate.pending_events:
                self._executor.is_quarantined(aggregate, aggregate.quarantined)
        return self._decide_safely(aggregate.id) is aggregate

    async def _fire_when_loaded(self, aggregate: Aggregate) -> None:
        if await self._load(aggregate):
            self._fire_timer(aggregate.id)

    def _pause_resting(self, aggregates: Sequence[Aggregate]) -> None:
        """Apply pauses wider than the aggregates to those that rest, where they change anything: one after the other,
        so that commands and calls go on meanwhile.
        """
        concerned = [one for one in aggregates if self.handler.wide_pauses_command(one) is not None]
        if concerned:
            self._lookups.begin(self._pause_when_loaded(concerned))

    async def _pause_when_loaded(self, aggregates: Sequence[Aggregate]) -> None:
        for aggregate in aggregates:
            if not await self._load(aggregate):
                continue
            order = self.handler.wide_pauses_command(aggregate)  # the pauses as they are now
            if order is not None:
                self._executor.submit(aggregate, order, at_ms=self._context.clock_ms())

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> list[CallReturned]:
        """Discard everything; returns the results that were decided on and may not be in the log."""
        self._lookups.end()
        self.handler.aggregate_closed()
        return [CallReturned(*result) for result in self.partition.unacknowledged_results()]
