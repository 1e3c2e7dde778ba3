"""What follows for a tool call whose outcome is not known: it is asked about, made again, or said to be unknown.

    lost with its owner  --it may be repeated--------->  the next attempt, visible
                         --its tool can be asked------>  a question (intent first)  --happened---->  its result
                                                                                    --it has not-->  the next attempt
                                                                                    --no answer--->  asked again
                         --neither, or too often------>  outcome_unknown

A second call is never silent, and one that must not be repeated is made again only when its tool says that the lost one
did not happen. Before: decide.py, one open call at a time. After: decide.py adds what follows for the turn.
"""

from collections.abc import Sequence

from schemas.run_events import Event, ToolCallRequested, ToolReconcileRequested, ToolReturned
from services.core.run import limits
from services.core.run.orders import DID_NOT_HAPPEN, FAILED, HAPPENED, Reconciled
from services.core.run.state import AwaitingTools, OpenCall

REPEATABLE = frozenset({"pure", "read", "idempotent"})
"""Effect classes of calls that may be made again when their result is lost; any other is treated as unsafe."""
LOST = "the process that ran this call was lost before it returned"


def lost_call(turn: int, opened: OpenCall) -> Event:
    """The owner of an open call, or of a question about it, is lost."""
    if opened.effect_class in REPEATABLE and opened.attempt <= limits.INTERRUPTIONS_MAX:
        return next_attempt(turn, opened)
    if opened.reconcilable and opened.asks < limits.RECONCILES_MAX:
        return _question(turn, opened, not_before_ms=0, reason=LOST)
    return outcome_unknown(turn, opened, LOST)


def reconciled(turn: int, opened: OpenCall, order: Reconciled) -> Event:
    """The tool was asked whether the call has happened."""
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
    return outcome_unknown(turn, opened, f"{LOST}, and the tool could not say more: {order.text}")


def open_call(state: AwaitingTools, turn: int, index: int) -> OpenCall | None:
    """The open call of that place; None when it has its result or is of another turn."""
    if state.turn != turn:
        return None
    return next((call for call in state.open if call.index == index), None)


def next_attempt(turn: int, opened: OpenCall) -> ToolCallRequested:
    return ToolCallRequested(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt + 1,
        effect_class=opened.effect_class,
        reconcilable=opened.reconcilable,
    )


def outcome_unknown(turn: int, opened: OpenCall, reason: str) -> ToolReturned:
    """The visible result of a call of which nobody can say what became of it."""
    return ToolReturned(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=f"outcome unknown: {reason[: limits.ERROR_TEXT_MAX]}; the call may or may not have had its effect. "
        "Check before you repeat it.",
        is_error=True,
        outcome="outcome_unknown",
    )


def answers(events: Sequence[Event]) -> int:
    """How many of the events are results."""
    return sum(isinstance(event, ToolReturned) for event in events)


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
