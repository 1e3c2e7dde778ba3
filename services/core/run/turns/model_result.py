"""What follows the answer of a model (tool calls, a turn, the end), or its failure (a wait, another model, the end).

Before: decide.py. After: going_on.py for what comes next; falling_back.py says which model is asked instead.
"""

from collections.abc import Mapping

from loomlog.schemas.generated.run_events import (
    Event,
    ModelCallFailed,
    ModelReplied,
    RunParked,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import InterruptionWish
from loomlog.schemas.making import maker
from loomlog.services.core.changing import changed
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelAnswered, ModelErred
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.run_facts import Facts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, State
from loomlog.services.core.run.tools import unknown_outcome
from loomlog.services.core.run.turns import fallback
from loomlog.services.core.run.turns.completion import has_iterations, run_completed, run_failed
from loomlog.services.core.run.turns.next_step import after_tools, next_attempt, next_step

# At each turn; see schemas/making.py.
_replied, _requested = maker(ModelReplied), maker(ToolCallRequested)
NO_WISHES: Mapping[int, InterruptionWish] = {}


def answered(state: State, order: ModelAnswered) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (order.turn, order.attempt):
        return []  # a late answer changes nothing
    replied = _replied(
        turn=order.turn,
        attempt=order.attempt,
        text=order.text,
        text_blob=order.text_blob,
        reasoning=order.reasoning,
        reasoning_signature=order.reasoning_signature,
        tool_calls=order.tool_calls,
        stop_reason=order.stop_reason,
        usage=order.usage,
        provider=order.provider,
        model=order.model,
        max_context_tokens=order.max_context_tokens,
        cost_micros=order.cost_micros,
        currency=order.currency,
        duration_ms=order.duration_ms,
        traceparent=order.traceparent,
        credential_source=order.credential_source,
        credential_scope=order.credential_scope,
    )
    facts = state.facts
    if order.tool_calls:
        events = [replied, *_tool_intents(facts, order)]
        if unknown_outcome.answers(events) < len(order.tool_calls):
            return events
        return [*events, *_after_all(state, events, order.at_ms)]
    if not facts.waiting_inputs and not facts.interactive:
        return [replied, run_completed(facts, order.stop_reason, order)]
    if not has_iterations(facts, order.turn):
        return [replied, run_completed(facts, "max_iterations", order)]  # nobody could answer what is said next
    if facts.waiting_inputs:
        return [replied, next_step(state, [replied], order.turn, order.at_ms)]
    return [replied, RunParked(since_turn=order.turn)]


def _tool_intents(facts: Facts, order: ModelAnswered) -> list[Event]:
    events: list[Event] = []
    wishes = {wish.index: wish for wish in order.wishes} if order.wishes else NO_WISHES
    for index, call in enumerate(order.tool_calls):
        if index in wishes and index < limits.MAX_TOOL_CALLS_PER_TURN:
            events += interruptions.begun(facts, order, wishes[index], events)
        elif index < limits.MAX_TOOL_CALLS_PER_TURN:
            events.append(
                _requested(
                    turn=order.turn,
                    index=index,
                    call_id=call.id,
                    effect_class=order.effect_classes[index],
                    reconcilable=bool(order.reconcilable) and order.reconcilable[index],
                )
            )
        else:
            events.append(
                ToolReturned(
                    turn=order.turn,
                    index=index,
                    call_id=call.id,
                    text=f"not carried out: a turn may ask for at most {limits.MAX_TOOL_CALLS_PER_TURN} tool calls",
                    is_error=True,
                    outcome="error",
                )
            )
    return events


def _after_all(state: AwaitingModel, events: list[Event], at_ms: int) -> list[Event]:
    """What follows a reply whose calls have their results with it."""
    after: State = state
    for event in events:
        after = evolve(after, event, at_ms)
    assert isinstance(after, AwaitingTools)
    return after_tools(after, [], at_ms)


def erred(state: State, order: ModelErred) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (order.turn, order.attempt):
        return []
    facts = state.facts
    wait_ms = retry_wait_ms(state, order)
    passed_over, switched = fallback.switch(state, order) if wait_ms is None else ([], None)
    takes_iteration = switched is not None or (wait_ms is not None and not _is_free(order))
    if takes_iteration and not has_iterations(facts, state.turn):
        wait_ms, passed_over, switched, takes_iteration = None, [], None, False
    failed = ModelCallFailed(
        turn=order.turn,
        attempt=order.attempt,
        kind=order.kind,
        message=order.message[: limits.ERROR_TEXT_MAX],
        retry_after_ms=order.retry_after_ms,
        provider=state.provider,
        model=state.model,
        duration_ms=order.duration_ms,
        failure_class=fallback.class_of(order.kind),
        takes_iteration=takes_iteration,
    )
    if wait_ms is not None:
        return [failed, next_attempt(state, order.at_ms + wait_ms, retry=state.failures + state.rate_limits + 1)]
    if switched is not None:
        there = changed(state, provider=switched.provider, model=switched.model)
        return [failed, *passed_over, switched, next_attempt(there, 0)]
    return [failed, *passed_over, run_failed(facts, fallback.end_code(order.kind), order.message)]


def _is_waited_for(order: ModelErred) -> bool:
    return fallback.is_waited_for(order.kind, retries_rate_limits=order.retries_rate_limits)


def _is_free(order: ModelErred) -> bool:
    """Another attempt takes no iteration."""
    return order.kind == fallback.STALE or _is_waited_for(order)


def retry_wait_ms(state: AwaitingModel, order: ModelErred) -> int | None:
    """How long to wait before the next attempt; None when the turn has failed (runtime parity 1.8)."""
    if not order.transient:
        return None
    if _is_waited_for(order):
        if state.rate_limits + 1 >= limits.RATE_LIMIT_ATTEMPTS:
            return None
        wait_ms = order.retry_after_ms or limits.RATE_LIMIT_BACKOFF_MS[state.rate_limits]
        return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None
    if order.kind == fallback.STALE and not state.failures:
        return 0  # whatever the definition allows: nobody has heard the question
    allowed = min(state.facts.definition.retry_attempts, limits.RETRY_ATTEMPTS_MAX)
    tried = state.failures + (state.rate_limits if not order.retries_rate_limits else 0)
    if tried >= allowed:
        return None
    wait_ms = max(limits.RETRY_BACKOFF_MS[tried], order.retry_after_ms)
    return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None
