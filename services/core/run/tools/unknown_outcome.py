"""What follows for a tool call whose outcome is not known: it is asked about, made again, or said to be unknown.

    lost with its owner  --it may be repeated--------->  the next attempt, visible
                         --its tool can be asked------>  a question (intent first)  --happened---->  its result
                                                                                    --it has not-->  the next attempt
                                                                                    --no answer--->  asked again
                         --neither, or too often------>  by policy (AgentDefinition.unknown_outcome):
                                                         tell: the visible result outcome_unknown
                                                         ask: the call waits until somebody says what became of it
                                                         fail: that result, and the end of the run

A second call is never silent, and one that must not be repeated is made again only when its tool says that the lost one
did not happen. Before: decide.py, one open call at a time. After: decide.py adds what follows for the turn.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.run_commands import ResolveCall
from loomlog.schemas.generated.run_events import (
    CallNotBegun,
    Event,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
)
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import DID_NOT_HAPPEN, FAILED, HAPPENED, CallKey, NotBegun, Reconciled, ToolDone
from loomlog.services.core.run.state import (
    OUTCOME_UNKNOWN,
    TOLD_BY_TOOL,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    OpenCall,
    State,
    open_at,
)
from loomlog.services.core.run.subagents.delegation import is_complete

REPEATABLE = frozenset({"pure", "read", "idempotent"})
"""Effect classes of calls that may be made again when their result is lost; any other is treated as unsafe."""
ASK, FAIL = "ask", "fail"
"""Values of AgentDefinition.unknown_outcome; with any other the model is told."""
LOST = "the process that ran this call was lost before it returned"


def lost_call(state: AwaitingTools, opened: OpenCall) -> list[Event]:
    """The owner of an open call, or of a question about it, is lost."""
    if opened.is_waiting or waits_for_children(opened):
        return []  # for a person or for runs, who do not go with the owner
    if opened.not_begun or (opened.effect_class in REPEATABLE and opened.attempt <= limits.INTERRUPTIONS_MAX):
        return [next_attempt(state.turn, opened)]
    if opened.reconcilable and opened.asks < limits.RECONCILES_MAX:
        return [_question(state.turn, opened, not_before_ms=0, reason=LOST)]
    return [_unknown(state, opened, LOST)]


def was_under_way(opened: OpenCall) -> bool:
    """The call, or a question about it, may have begun and was not given to a person."""
    return not opened.is_waiting and not opened.not_begun and opened.delegation is None


def waits_for_children(opened: OpenCall) -> bool:
    """Nothing of the call is under way but its children."""
    return opened.delegation is not None and not is_complete(opened.delegation)


def reconciled(state: AwaitingTools, opened: OpenCall, order: Reconciled) -> Event:
    """The tool was asked whether the call has happened."""
    turn = state.turn
    if order.verdict == HAPPENED:
        return ToolReturned(
            turn=turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            text=order.text,
            text_blob=order.text_blob,
            is_error=order.is_error,
            outcome="error" if order.is_error else "ok",
            duration_ms=order.duration_ms,
            settled_by="reconciler",
        )
    if order.verdict == DID_NOT_HAPPEN and opened.attempt <= limits.INTERRUPTIONS_MAX:
        return next_attempt(turn, opened)
    if order.verdict == FAILED and opened.asks < limits.RECONCILES_MAX:
        wait_ms = limits.RECONCILE_BACKOFF_MS[opened.asks - 1]
        return _question(turn, opened, not_before_ms=order.at_ms + wait_ms, reason=order.text)
    return _unknown(state, opened, f"{LOST}, and the tool could not say more: {order.text}")


def told_by_the_tool(state: AwaitingTools, opened: OpenCall, order: ToolDone) -> Event:
    """The tool itself says that nobody can know: whoever carried the call out went away in the middle of it."""
    if state.facts.definition.unknown_outcome == ASK:
        return ToolOutcomeAsked(
            turn=state.turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            reason=order.text[: limits.ERROR_TEXT_MAX],
        )
    return ToolReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=order.text,
        text_blob=order.text_blob,
        is_error=True,
        outcome=OUTCOME_UNKNOWN,
        duration_ms=order.duration_ms,
        settled_by=TOLD_BY_TOOL,
    )


def resolved(turn: int, opened: OpenCall, command: ResolveCall) -> Event:
    """Somebody says what became of a call that waits for it."""
    if not command.done:
        return next_attempt(turn, opened)
    return ToolReturned(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=command.result or "done: an operator has checked that this call had its effect",
        settled_by="operator",
    )


def fails_the_run(state: AwaitingTools, events: Sequence[Event]) -> bool:
    """An outcome is unknown and the definition wants the run to end then."""
    told = any(isinstance(event, ToolReturned) and event.outcome == OUTCOME_UNKNOWN for event in events)
    return told and state.facts.definition.unknown_outcome == FAIL


def open_call(state: AwaitingTools, turn: int, index: int) -> OpenCall | None:
    """The open call of that place; None when it has its result or is of another turn."""
    if state.turn != turn:
        return None
    return open_at(state, index)


def not_begun(state: State, order: NotBegun) -> list[Event]:
    """That calls were not begun, in the log: the next owner begins them at once, whatever their class."""
    return [
        CallNotBegun(kind=kind, turn=turn, index=index, attempt=attempt)
        for kind, turn, index, attempt in open_keys(state)
        if (kind, turn, index, attempt) in order.keys and kind != "reconcile"
    ]


def open_keys(state: State) -> list[CallKey]:
    """The calls and questions that are due or under way; what waits for a person or for children is neither."""
    match state:
        case AwaitingModel(turn=turn, attempt=attempt):
            return [("model", turn, 0, attempt)]
        case AwaitingTools(turn=turn):
            return [
                _key(turn, opened) for opened in state.open if not opened.is_waiting and not waits_for_children(opened)
            ]
        case Compacting(number=number, attempt=attempt) if attempt:
            return [("compact", number, 0, attempt)]
        case _:
            return []


def keys_worth_waiting_for(state: State) -> list[CallKey]:
    """Open calls that cost something twice and may have begun: model calls, and tools that must not be repeated."""
    if isinstance(state, AwaitingTools):
        calls = [
            call
            for call in state.open
            if not (call.is_waiting or call.is_asking or call.not_begun or waits_for_children(call))
        ]
        return [_key(state.turn, call) for call in calls if call.effect_class not in REPEATABLE]
    return [] if isinstance(state, AwaitingModel | Compacting) and state.not_begun else open_keys(state)


def _key(turn: int, opened: OpenCall) -> CallKey:
    if opened.is_asking:
        return ("reconcile", turn, opened.index, opened.asks)
    return ("tool", turn, opened.index, opened.attempt)


def next_attempt(turn: int, opened: OpenCall) -> ToolCallRequested:
    return ToolCallRequested(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt + 1,
        effect_class=opened.effect_class,
        reconcilable=opened.reconcilable,
    )


def _unknown(state: AwaitingTools, opened: OpenCall, reason: str) -> Event:
    """The visible result of a call of which nobody can say what became of it, or the question to a person."""
    if state.facts.definition.unknown_outcome == ASK:
        return ToolOutcomeAsked(
            turn=state.turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            reason=reason[: limits.ERROR_TEXT_MAX],
        )
    return ToolReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=f"outcome unknown: {reason[: limits.ERROR_TEXT_MAX]}; the call may or may not have had its effect. "
        "Check before you repeat it.",
        is_error=True,
        outcome=OUTCOME_UNKNOWN,
    )


def answers(events: Sequence[Event]) -> int:
    """How many of the events are results."""
    return len([event for event in events if isinstance(event, ToolReturned)])


def _question(turn: int, opened: OpenCall, *, not_before_ms: int, reason: str) -> ToolReconcileRequested:
    return ToolReconcileRequested(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        ask=opened.asks + 1,
        not_before_ms=not_before_ms,
        reason=reason[: limits.ERROR_TEXT_MAX],
    )
