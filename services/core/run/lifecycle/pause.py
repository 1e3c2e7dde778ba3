"""Pausing: what stops a run before its next model call, and what resumes it.

Two things can hold a run: its own pause (PauseRun) and pauses of a wider scope (its agent, its tenant, everything),
which the owner compares with the run again and again (ApplyWidePauses). Each scope is lifted by itself; the run
continues when none is left. A pause never falls between a tool call and its result, and a model call under way is
finished and recorded.

Before: services/core/run/decide.py. After: services/core/run/state.py folds the pauses into the facts.
"""

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    Event,
    ModelCallRequested,
    RunPaused,
    RunPauseRequested,
    RunResumed,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ApplyWidePauses, PauseCommand, ResumeCommand
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import LiveState, Paused, State

RUN_SCOPE = "run"
"""Scope of a pause of one run; wider ones (agent, tenant, all) are in the pause table."""


def pause_run(state: State, request: PauseCommand) -> list[Event]:
    """Pause the run itself; refused with already_pausing if it already is."""
    if not isinstance(state, LiveState):
        return []
    if any(held.scope == RUN_SCOPE for held in state.facts.pauses):
        return [CommandRefused(code="already_pausing", message=f"the run {state.facts.run_id} is paused already")]
    return [pause_requested(Pause(scope=RUN_SCOPE, reason=request.command.reason, by=request.command.envelope.subject))]


def resume_run(state: State, request: ResumeCommand) -> list[Event]:
    """Lift the run's own pause; refused with not_paused if it has none. Wider ones still hold it."""
    if not isinstance(state, LiveState):
        return []
    facts = state.facts
    if not any(held.scope == RUN_SCOPE for held in facts.pauses):
        wider = ", ".join(held.scope for held in facts.pauses)
        why = f"is paused as part of {wider}: resume that" if wider else "is not paused"
        return [CommandRefused(code="not_paused", message=f"the run {facts.run_id} {why}")]
    left = tuple(held for held in facts.pauses if held.scope != RUN_SCOPE)
    lifted = RunResumed(scope=RUN_SCOPE, by=request.command.envelope.subject, remaining=len(left))
    return [lifted, *_continue_run(state, left)]


def apply_wide_pauses(state: State, command: ApplyWidePauses) -> list[Event]:
    """Apply the pauses of a wider scope to the run; no events if it has them already."""
    if not isinstance(state, LiveState):
        return []
    events, held = pause_changes(state.facts, command)
    return [*events, *_continue_run(state, held.pauses)] if events else []


def pause_changes(facts: RunFacts, command: ApplyWidePauses | None) -> tuple[list[Event], RunFacts]:
    """Return the events that give the run the wanted pauses, and the facts after them. Its own pause is kept."""
    if command is None:
        return [], facts
    scopes = {pause.scope for pause in command.pauses} | {RUN_SCOPE}
    known = {pause.scope for pause in facts.pauses}
    added = tuple(pause for pause in command.pauses if pause.scope not in known)
    ended = [pause for pause in facts.pauses if pause.scope not in scopes]
    pauses = (*facts.pauses, *added)
    # Pauses are added before others end, so that a run that exchanges its pause is never without one.
    events: list[Event] = [*map(pause_requested, added)]
    for pause in ended:
        pauses = tuple(held for held in pauses if held != pause)
        events.append(RunResumed(scope=pause.scope, by=command.by, remaining=len(pauses)))
    return events, replace(facts, pauses=pauses)


def _continue_run(state: LiveState, pauses: tuple[Pause, ...]) -> list[Event]:
    """Resume what was held back, once no pause is left."""
    if pauses or not isinstance(state, Paused):
        return []
    if state.attempt == 0 and (compaction := conversation_compaction.due_compaction(state.facts)) is not None:
        return [compaction]
    current = state.facts.current_model
    return [
        ModelCallRequested(
            turn=state.turn,
            attempt=state.attempt + 1,
            provider=current.provider,
            model=current.model,
            not_before_ms=state.not_before_ms,
            retry=state.failures + state.rate_limits,
        )
    ]


def pause_requested(pause: Pause) -> RunPauseRequested:
    """Return the event that requests the pause."""
    return RunPauseRequested(scope=pause.scope, reason=pause.reason[: limits.PAUSE_REASON_MAX], by=pause.by)


def run_paused(pauses: tuple[Pause, ...], turn: int, not_before_ms: int = 0) -> RunPaused:
    """Return the event that holds back the next call of `turn`."""
    return RunPaused(turn=turn, reason=pauses[0].reason[: limits.PAUSE_REASON_MAX], not_before_ms=not_before_ms)
