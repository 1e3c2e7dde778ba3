"""Recovery of a tool call whose outcome is not known: it is reconciled, repeated, or reported as unknown.

    lost with its owner  --it may be repeated--------->  the next attempt, visible
                         --its tool can reconcile----->  a query (intent first)  --happened------->  its result
                                                                                 --not happened--->  the next attempt
                                                                                 --no answer------>  queried again
                         --neither, or too often------>  by policy (AgentDefinition.unknown_outcome):
                                                         tell: the visible result outcome_unknown
                                                         ask: the call waits until a person reports its outcome
                                                         fail: that result, and the end of the run

A second call is never silent, and one that must not be repeated is made again only when its tool reports that the lost
one did not happen.

Before: services/core/run/decide.py, one open call at a time. After: services/core/run/decide.py adds what follows for
the turn.
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
from loomlog.services.core.run.commands import (
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    CallKey,
    CallsUnstarted,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.state import (
    OUTCOME_UNKNOWN,
    REPORTED_BY_TOOL,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    OpenCall,
    State,
    find_open_call,
)
from loomlog.services.core.run.subagents.delegation import is_complete

REPEATABLE = frozenset({"pure", "read", "idempotent"})
"""Effect classes of calls that may be made again when their result is lost; any other is treated as unsafe."""
ASK, FAIL = "ask", "fail"
"""Values of AgentDefinition.unknown_outcome; with any other the model receives the result outcome_unknown."""
OWNER_LOST_REASON = "the process that ran this call was lost before it returned"


def recover_lost_call(state: AwaitingTools, opened: OpenCall) -> list[Event]:
    """Recover an open call, or a query about it, whose owner is lost."""
    if opened.awaits_person or opened.wait is not None or waits_for_children(opened):
        return []  # it waits for a person, for channels or for runs, which are not lost with the owner
    if opened.is_unstarted or (opened.effect_class in REPEATABLE and opened.attempt <= limits.LOST_ATTEMPTS_MAX):
        return [next_tool_attempt(state.turn, opened)]
    if opened.reconcilable and opened.reconcile_attempts < limits.RECONCILES_MAX:
        return [_request_reconciliation(state.turn, opened, not_before_ms=0, reason=OWNER_LOST_REASON)]
    return [_unknown_outcome(state, opened, OWNER_LOST_REASON)]


def may_have_started(opened: OpenCall) -> bool:
    """Whether the call, or a query about it, may have started and does not wait for a person or a channel."""
    return not (opened.awaits_person or opened.is_unstarted) and opened.delegation is None and opened.wait is None


def waits_for_children(opened: OpenCall) -> bool:
    """Whether the call waits for its children and nothing else."""
    return opened.delegation is not None and not is_complete(opened.delegation)


def resolve_by_reconciler(state: AwaitingTools, opened: OpenCall, result: ToolReconciled) -> Event:
    """Apply the tool's reply to the query whether the call has happened."""
    turn = state.turn
    if result.verdict == HAPPENED:
        return ToolReturned(
            turn=turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            text=result.text,
            text_blob=result.text_blob,
            is_error=result.is_error,
            outcome="error" if result.is_error else "ok",
            duration_ms=result.duration_ms,
            settled_by="reconciler",
            whole_blob=result.whole_blob,
        )
    if result.verdict == DID_NOT_HAPPEN and opened.attempt <= limits.LOST_ATTEMPTS_MAX:
        return next_tool_attempt(turn, opened)
    if result.verdict == FAILED and opened.reconcile_attempts < limits.RECONCILES_MAX:
        wait_ms = limits.RECONCILE_BACKOFF_MS[opened.reconcile_attempts - 1]
        return _request_reconciliation(turn, opened, not_before_ms=result.at_ms + wait_ms, reason=result.text)
    return _unknown_outcome(state, opened, f"{OWNER_LOST_REASON}, and the tool could not say more: {result.text}")


def report_unknown_outcome(state: AwaitingTools, opened: OpenCall, result: ToolCompleted) -> Event:
    """Apply a result of unknown outcome that the tool itself reports: its executor was lost during the call."""
    if state.facts.definition.unknown_outcome == ASK:
        return ToolOutcomeAsked(
            turn=state.turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            reason=result.text[: limits.ERROR_TEXT_MAX],
        )
    return ToolReturned(
        turn=state.turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=result.text,
        text_blob=result.text_blob,
        is_error=True,
        outcome=OUTCOME_UNKNOWN,
        duration_ms=result.duration_ms,
        settled_by=REPORTED_BY_TOOL,
        whole_blob=result.whole_blob,
    )


def resolve_by_operator(turn: int, opened: OpenCall, command: ResolveCall) -> Event:
    """Apply the outcome that a person reports for a call that waits for it."""
    if not command.done:
        return next_tool_attempt(turn, opened)
    return ToolReturned(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        text=command.result or "done: an operator has checked that this call had its effect",
        settled_by="operator",
    )


def must_fail_run(state: AwaitingTools, events: Sequence[Event]) -> bool:
    """Whether an outcome is unknown and the definition wants the run to end then."""
    is_unknown = any(isinstance(event, ToolReturned) and event.outcome == OUTCOME_UNKNOWN for event in events)
    return is_unknown and state.facts.definition.unknown_outcome == FAIL


def find_call_of_turn(state: AwaitingTools, turn: int, index: int) -> OpenCall | None:
    """Return the open call at that index; None when it has its result or is of another turn."""
    if state.turn != turn:
        return None
    return find_open_call(state, index)


def record_unstarted_calls(state: State, command: CallsUnstarted) -> list[Event]:
    """Record that calls were not started: the next owner starts them at once, whatever their effect class."""
    return [
        CallNotBegun(kind=kind, turn=turn, index=index, attempt=attempt)
        for kind, turn, index, attempt in open_call_keys(state)
        if (kind, turn, index, attempt) in command.keys and kind != "reconcile"
    ]


def open_call_keys(state: State) -> list[CallKey]:
    """Return the calls and queries that are due or under way, without those that wait for a person, for channels or for
    children.
    """
    match state:
        case AwaitingModel(turn=turn, attempt=attempt):
            return [("model", turn, 0, attempt)]
        case AwaitingTools(turn=turn):
            return [
                _key(turn, opened)
                for opened in state.open
                if not opened.awaits_person and opened.wait is None and not waits_for_children(opened)
            ]
        case Compacting(number=number, attempt=attempt) if attempt:
            return [("compact", number, 0, attempt)]
        case _:
            return []


def costly_call_keys(state: State) -> list[CallKey]:
    """Return open calls that may have started and cost twice: model calls, and tools that must not be repeated."""
    if isinstance(state, AwaitingTools):
        calls = [
            call
            for call in state.open
            if not (call.awaits_person or call.is_reconciling or call.is_unstarted or waits_for_children(call))
            and call.wait is None
        ]
        return [_key(state.turn, call) for call in calls if call.effect_class not in REPEATABLE]
    return [] if isinstance(state, AwaitingModel | Compacting) and state.is_unstarted else open_call_keys(state)


def _key(turn: int, opened: OpenCall) -> CallKey:
    if opened.is_reconciling:
        return ("reconcile", turn, opened.index, opened.reconcile_attempts)
    return ("tool", turn, opened.index, opened.attempt)


def next_tool_attempt(turn: int, opened: OpenCall) -> ToolCallRequested:
    return ToolCallRequested(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt + 1,
        effect_class=opened.effect_class,
        reconcilable=opened.reconcilable,
    )


def _unknown_outcome(state: AwaitingTools, opened: OpenCall, reason: str) -> Event:
    """Return the visible result of a call whose outcome cannot be known, or the question to a person."""
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


def count_results(events: Sequence[Event]) -> int:
    """Count the results among the events."""
    return len([event for event in events if isinstance(event, ToolReturned)])


def _request_reconciliation(turn: int, opened: OpenCall, *, not_before_ms: int, reason: str) -> ToolReconcileRequested:
    return ToolReconcileRequested(
        turn=turn,
        index=opened.index,
        call_id=opened.call.id,
        attempt=opened.attempt,
        ask=opened.reconcile_attempts + 1,
        not_before_ms=not_before_ms,
        reason=reason[: limits.ERROR_TEXT_MAX],
    )
