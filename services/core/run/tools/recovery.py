"""What follows when an owner was lost, or a quarantined run is released: what was under way and is not any more.

Calls are re-run where they may be, visibly; never a silent second call. What is still running, here or with an owner
that hands over, is left alone.

Before: decide.py. After: unknown.py for tool calls whose outcome nobody knows, going_on.py for what comes next.
"""

from typing import assert_never

from loomlog.schemas.generated.run_events import Event, ModelCallFailed
from loomlog.services.core.changing import changed
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import Reconciled, Recover, Release
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.lifecycle import pause, quarantine
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Parked,
    Paused,
    Refused,
    State,
)
from loomlog.services.core.run.tools import hook_events, unknown_outcome
from loomlog.services.core.run.turns import fallback
from loomlog.services.core.run.turns.completion import run_failed
from loomlog.services.core.run.turns.next_step import after_compaction, next_attempt, with_what_follows


def recover(state: State, order: Recover) -> list[Event]:
    """Calls that were under way with a lost owner: re-run what may be, visibly; never a silent second call."""
    match state:
        case AwaitingModel(facts=facts):
            changes, held = pause.changes(facts, order.obey)
            return [*changes, *_recover_model(changed(state, facts=held), order)]
        case AwaitingTools(facts=facts):
            changes, held = pause.changes(facts, order.obey)
            return [*changes, *_recover_tools(changed(state, facts=held), order)]
        case Compacting(facts=facts):
            changes, held = pause.changes(facts, order.obey)
            after = changed(state, facts=held)
            return [*changes, *after_compaction(after, compaction.lost(after, order), order.at_ms)]
        case Parked() | Paused():
            return pause.obey(state, order.obey) if order.obey is not None else []
        case Absent() | Refused() | Ended():
            return []
        case _:
            assert_never(state)


def release(state: State, order: Release) -> list[Event]:
    """The run goes on, with what was under way treated as after a take-over."""
    events, after = quarantine.release(state, order)
    return [*events, *(recover(after, Recover(at_ms=order.at_ms, obey=order.obey)) if after is not None else [])]


def _recover_model(state: AwaitingModel, order: Recover) -> list[Event]:
    if ("model", state.turn, 0, state.attempt) in order.still_running:
        return []
    if state.not_begun:
        return [next_attempt(state, state.not_before_ms)]
    if state.interruptions >= limits.INTERRUPTIONS_MAX:
        return [run_failed(state.facts, fallback.INTERRUPTED, f"turn {state.turn} was lost with its owner too often")]
    return [
        ModelCallFailed(
            turn=state.turn,
            attempt=state.attempt,
            kind=fallback.INTERRUPTED,
            message="the owner of the run was lost before the call returned",
            provider=state.provider,
            model=state.model,
            failure_class=fallback.class_of(fallback.INTERRUPTED),
        ),
        next_attempt(state, state.not_before_ms),
    ]


def _recover_tools(state: AwaitingTools, order: Recover) -> list[Event]:
    events: list[Event] = []
    losses = state.facts.losses.count
    for opened in state.open:
        asked = ("reconcile", state.turn, opened.index, opened.asks) if opened.is_asking else None
        called = ("tool", state.turn, opened.index, opened.attempt)
        if called not in order.still_running and asked not in order.still_running:
            if losses >= limits.LOSSES_MAX and unknown_outcome.was_under_way(opened):
                return [quarantine.lost_too_often(state, opened)]
            events += unknown_outcome.lost_call(state, opened)
    return with_what_follows(state, events, order.at_ms)


def reconciled(state: State, order: Reconciled) -> list[Event]:
    opened = unknown_outcome.open_call(state, order.turn, order.index) if isinstance(state, AwaitingTools) else None
    if opened is None or not opened.is_asking or (opened.attempt, opened.asks) != (order.attempt, order.ask):
        return []
    assert isinstance(state, AwaitingTools)
    acts = hook_events.acted(order.turn, opened, order.hook_acts)
    return with_what_follows(state, [*acts, unknown_outcome.reconciled(state, opened, order)], order.at_ms)
