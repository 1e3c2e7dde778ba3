"""What follows when an owner was lost, or a quarantined run is released: what was under way and is not any more.

Calls are re-run where they may be, visibly; never a silent second call. What is still running, here or with an owner
that hands over, is left alone.

Before: decide.py. After: unknown.py for tool calls whose outcome nobody knows, going_on.py for what comes next.
"""

from typing import assert_never

from schemas.run_events import (
    Event,
    ModelCallFailed,
)
from services.core.changing import changed
from services.core.run import (
    compacting,
    falling_back,
    hooking,
    limits,
    pausing,
    quarantining,
    unknown,
)
from services.core.run.ending import run_failed
from services.core.run.going_on import after_compaction, next_attempt, with_what_follows
from services.core.run.orders import (
    Reconciled,
    Recover,
    Release,
)
from services.core.run.state import (
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


def recover(state: State, order: Recover) -> list[Event]:
    """Calls that were under way with a lost owner: re-run what may be, visibly; never a silent second call."""
    match state:
        case AwaitingModel(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            return [*changes, *_recover_model(changed(state, facts=held), order)]
        case AwaitingTools(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            return [*changes, *_recover_tools(changed(state, facts=held), order)]
        case Compacting(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            after = changed(state, facts=held)
            return [*changes, *after_compaction(after, compacting.lost(after, order), order.at_ms)]
        case Parked() | Paused():
            return pausing.obey(state, order.obey) if order.obey is not None else []
        case Absent() | Refused() | Ended():
            return []
        case _:
            assert_never(state)


def release(state: State, order: Release) -> list[Event]:
    """The run goes on, with what was under way treated as after a take-over."""
    events, after = quarantining.release(state, order)
    return [*events, *(recover(after, Recover(at_ms=order.at_ms, obey=order.obey)) if after is not None else [])]


def _recover_model(state: AwaitingModel, order: Recover) -> list[Event]:
    if ("model", state.turn, 0, state.attempt) in order.still_running:
        return []
    if state.not_begun:
        return [next_attempt(state, state.not_before_ms)]
    if state.interruptions >= limits.INTERRUPTIONS_MAX:
        return [
            run_failed(state.facts, falling_back.INTERRUPTED, f"turn {state.turn} was lost with its owner too often")
        ]
    return [
        ModelCallFailed(
            turn=state.turn,
            attempt=state.attempt,
            kind=falling_back.INTERRUPTED,
            message="the owner of the run was lost before the call returned",
            provider=state.provider,
            model=state.model,
            failure_class=falling_back.class_of(falling_back.INTERRUPTED),
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
            if losses >= limits.LOSSES_MAX and unknown.was_under_way(opened):
                return [quarantining.lost_too_often(state, opened)]
            events += unknown.lost_call(state, opened)
    return with_what_follows(state, events, order.at_ms)


def reconciled(state: State, order: Reconciled) -> list[Event]:
    opened = unknown.open_call(state, order.turn, order.index) if isinstance(state, AwaitingTools) else None
    if opened is None or not opened.is_asking or (opened.attempt, opened.asks) != (order.attempt, order.ask):
        return []
    assert isinstance(state, AwaitingTools)
    acts = hooking.acted(order.turn, opened, order.hook_acts)
    return with_what_follows(state, [*acts, unknown.reconciled(state, opened, order)], order.at_ms)
