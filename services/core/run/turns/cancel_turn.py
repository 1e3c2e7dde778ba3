"""Stop of a turn of an interactive run from outside; the run itself continues, and waits for the next input.

    a model call is under way   its output so far is kept, as far as its caller had it (CancelTurnCommand.text)
    tool calls are under way    each open call gets the result "cancelled by operator", each question is cancelled

This is not a provider failure: no retry, no failure, nothing is counted. The stop or the result, whichever is decided
first, wins; the other then no longer applies. A run cancel (services/core/run/decide.py) ends the run.

Before: services/core/run/decide.py, which adds what follows. After: services/core/run/react.py stops the calls.
"""

from loomlog.schemas.generated.run_events import CommandRefused, Event, ToolReturned, TurnCancelled
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import CancelTurnCommand
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.state import (
    CALL_CANCELLED,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    OpenCall,
    Parked,
    Paused,
    State,
)
from loomlog.services.core.run.tools.unknown_outcome import REPEATABLE

CANCELLED_BY_OPERATOR = "cancelled by operator"
"""Result text of a call that was stopped; clients know the wording."""


def cancel_turn(state: State, request: CancelTurnCommand) -> list[Event]:
    """Return the end of the turn, without what follows; a refusal when there is none to stop."""
    match state:
        case (
            AwaitingModel(facts=facts)
            | AwaitingTools(facts=facts)
            | Parked(facts=facts)
            | Paused(facts=facts)
            | Compacting(facts=facts)
        ) if not facts.options.interactive:
            message = f"{facts.run_id} is not interactive: cancel the run itself"
            return [CommandRefused(code="not_interactive", message=message)]
        case AwaitingModel():
            is_it = (request.turn, request.attempt) == (state.turn, state.attempt)
            return [
                TurnCancelled(
                    turn=state.turn,
                    attempt=state.attempt,
                    reason=request.command.reason[: limits.ERROR_TEXT_MAX],
                    by=request.command.envelope.subject,
                    text=request.text if is_it else "",
                    text_blob=request.text_blob if is_it else None,
                    provider=state.provider,
                    model=state.model,
                )
            ]
        case AwaitingTools():
            return [
                *(_cancelled_call(state.turn, call) for call in state.open),
                *interruptions.cancel_questions(state, CANCELLED_BY_OPERATOR),
                TurnCancelled(
                    turn=state.turn,
                    reason=request.command.reason[: limits.ERROR_TEXT_MAX],
                    by=request.command.envelope.subject,
                ),
            ]
        case Parked() | Paused() | Compacting():
            message = f"no turn of {state.facts.run_id} is under way"
            return [CommandRefused(code="not_mid_turn", message=message)]
        case _:
            return []


def _cancelled_call(turn: int, opened: OpenCall) -> ToolReturned:
    has_begun = not opened.is_unstarted and opened.wait is None
    may_have_happened = opened.effect_class not in REPEATABLE and has_begun
    doubt = "; the call may or may not have had its effect" if may_have_happened else ""
    return ToolReturned(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=CANCELLED_BY_OPERATOR + doubt,
        is_error=True,
        outcome=CALL_CANCELLED,
    )
