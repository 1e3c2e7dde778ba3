"""Recovery after the loss of an owner, or on the release of a quarantined run, of what was under way and is not any
more.

Calls are re-run where allowed, and visibly; there is never a silent second call. What is still running, here or with an
owner that hands over, is left alone.

Before: services/core/run/decide.py. After: unknown_outcome.py for tool calls of unknown outcome,
services/core/run/turns/next_step.py for what comes next.
"""

from typing import assert_never

from loomlog.schemas.generated.run_events import Event, ModelCallFailed
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import RecoverCommand, ReleaseCommand, ToolReconciled
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
from loomlog.services.core.run.tools import call_questions, hook_events, unknown_outcome, waits
from loomlog.services.core.run.turns import fallback
from loomlog.services.core.run.turns.completion import run_failed
from loomlog.services.core.run.turns.next_step import after_compaction, next_model_attempt, with_next_step


def recover_run(state: State, command: RecoverCommand) -> list[Event]:
    """Re-run the calls that were under way with a lost owner, where allowed and visibly; never a silent second call."""
    match state:
        case AwaitingModel(facts=facts):
            changes, held = pause.pause_changes(facts, command.wide_pauses)
            return [*changes, *_recover_model(replace(state, facts=held), command)]
        case AwaitingTools(facts=facts):
            changes, held = pause.pause_changes(facts, command.wide_pauses)
            return [*changes, *_recover_tools(replace(state, facts=held), command)]
        case Compacting(facts=facts):
            changes, held = pause.pause_changes(facts, command.wide_pauses)
            after = replace(state, facts=held)
            return [*changes, *after_compaction(after, compaction.recover_compaction(after, command), command.at_ms)]
        case Parked() | Paused():
            return pause.apply_wide_pauses(state, command.wide_pauses) if command.wide_pauses is not None else []
        case Absent() | Refused() | Ended():
            return []
        case _:
            assert_never(state)


def release_run(state: State, request: ReleaseCommand) -> list[Event]:
    """Resume the run, with what was under way treated as after a takeover."""
    events, after = quarantine.release_quarantine(state, request)
    return [
        *events,
        *(
            recover_run(after, RecoverCommand(at_ms=request.at_ms, wide_pauses=request.wide_pauses))
            if after is not None
            else []
        ),
    ]


def _recover_model(state: AwaitingModel, command: RecoverCommand) -> list[Event]:
    if ("model", state.turn, 0, state.attempt) in command.still_running:
        return []
    if state.is_unstarted:
        return [next_model_attempt(state, state.not_before_ms)]
    if state.lost_attempts >= limits.LOST_ATTEMPTS_MAX:
        return [run_failed(state.facts, fallback.INTERRUPTED, f"turn {state.turn} was lost with its owner too often")]
    return [
        ModelCallFailed(
            turn=state.turn,
            attempt=state.attempt,
            kind=fallback.INTERRUPTED,
            message="the owner of the run was lost before the call returned",
            provider=state.provider,
            model=state.model,
            failure_class=fallback.failure_class(fallback.INTERRUPTED),
        ),
        next_model_attempt(state, state.not_before_ms),
    ]


def _recover_tools(state: AwaitingTools, command: RecoverCommand) -> list[Event]:
    events: list[Event] = []
    losses = state.facts.losses.count
    for opened in state.open:
        asked = ("reconcile", state.turn, opened.index, opened.reconcile_attempts) if opened.is_reconciling else None
        called = ("tool", state.turn, opened.index, opened.attempt)
        if called not in command.still_running and asked not in command.still_running:
            if losses >= limits.LOSSES_MAX and unknown_outcome.may_have_started(opened):
                return [quarantine.quarantine_after_losses(state, opened)]
            events += unknown_outcome.recover_lost_call(state, opened)
        events += waits.outlasted_wait(state, opened, command.at_ms)
    events += call_questions.recover_held_calls(state)
    return with_next_step(state, events, command.at_ms)


def handle_reconciled(state: State, result: ToolReconciled) -> list[Event]:
    opened = (
        unknown_outcome.find_call_of_turn(state, result.turn, result.index)
        if isinstance(state, AwaitingTools)
        else None
    )
    if (
        opened is None
        or not opened.is_reconciling
        or (opened.attempt, opened.reconcile_attempts) != (result.attempt, result.ask)
    ):
        return []
    assert isinstance(state, AwaitingTools)
    acts = hook_events.hook_events(result.turn, opened, result.hook_acts)
    return with_next_step(state, [*acts, unknown_outcome.resolve_by_reconciler(state, opened, result)], result.at_ms)
