"""Decisions after a model's answer (tool calls, a turn, the end), or its failure (a wait, another model, the end).

Before: services/core/run/decide.py. After: next_step.py for what comes next; fallback.py selects the model that is
called instead.
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
from loomlog.schemas.generated.values import CallVerdict, InterruptionRequest
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelAnswered, ModelFailed
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts import approvals, interruptions
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, State
from loomlog.services.core.run.tools import unknown_outcome
from loomlog.services.core.run.turns import fallback, typed_answer
from loomlog.services.core.run.turns.completion import has_iterations, run_failed, turns_used_up
from loomlog.services.core.run.turns.next_step import after_tools, next_model_attempt, next_step

NO_INTERRUPTION_REQUESTS: Mapping[int, InterruptionRequest] = {}
NO_VERDICTS: Mapping[int, CallVerdict] = {}


def handle_model_answered(state: State, result: ModelAnswered) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (result.turn, result.attempt):
        return []  # a late answer changes nothing
    tool_lists = () if result.tool_lists == state.facts.tool_lists else result.tool_lists
    replied = copy_as(ModelReplied, result, tool_lists=tool_lists)
    facts = state.facts
    if result.tool_calls:
        events = [replied, *_tool_intents(facts, result)]
        if unknown_outcome.count_results(events) < len(result.tool_calls):
            return events
        return [*events, *_after_immediate_results(state, events, result.at_ms)]
    if not facts.waiting_inputs and not facts.options.interactive:
        return [replied, *typed_answer.end_with_answer(state, replied, result)]
    if not has_iterations(facts, result.turn):
        return [replied, turns_used_up(facts, result)]  # no turn is left to respond to further input
    if facts.waiting_inputs:
        return [replied, next_step(state, [replied], result.turn, result.at_ms)]
    return [replied, RunParked(since_turn=result.turn)]


def _tool_intents(facts: RunFacts, result: ModelAnswered) -> list[Event]:
    events: list[Event] = []
    requests = (
        {request.index: request for request in result.interruption_requests}
        if result.interruption_requests
        else NO_INTERRUPTION_REQUESTS
    )
    verdicts = approvals.verdicts_of(facts, result) if facts.definition.approvals else NO_VERDICTS
    for index, call in enumerate(result.tool_calls):
        if index in requests and index < limits.MAX_TOOL_CALLS_PER_TURN:
            events += interruptions.open_interruption(facts, result, requests[index], events)
        elif index < limits.MAX_TOOL_CALLS_PER_TURN and facts.definition.approvals:
            events += approvals.decide_call(facts, result, index, verdicts.get(index))
        elif index < limits.MAX_TOOL_CALLS_PER_TURN:
            events.append(
                ToolCallRequested(
                    turn=result.turn,
                    index=index,
                    call_id=call.id,
                    effect_class=result.effect_classes[index],
                    reconcilable=bool(result.reconcilable) and result.reconcilable[index],
                )
            )
        else:
            events.append(
                ToolReturned(
                    turn=result.turn,
                    index=index,
                    call_id=call.id,
                    text=f"not carried out: a turn may ask for at most {limits.MAX_TOOL_CALLS_PER_TURN} tool calls",
                    is_error=True,
                    outcome="error",
                )
            )
    return events


def _after_immediate_results(state: AwaitingModel, events: list[Event], at_ms: int) -> list[Event]:
    """Return what follows a reply whose calls all have their results with it."""
    after: State = state
    for event in events:
        after = evolve(after, event, at_ms)
    assert isinstance(after, AwaitingTools)
    return after_tools(after, [], at_ms)


def handle_model_failed(state: State, result: ModelFailed) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (result.turn, result.attempt):
        return []
    facts = state.facts
    wait_ms = retry_wait_ms(state, result)
    passed_over, switched = fallback.switch_model(state, result) if wait_ms is None else ([], None)
    takes_iteration = switched is not None or (wait_ms is not None and not _is_free_retry(result))
    if takes_iteration and not has_iterations(facts, state.turn):
        wait_ms, passed_over, switched, takes_iteration = None, [], None, False
    failed = ModelCallFailed(
        turn=result.turn,
        attempt=result.attempt,
        kind=result.kind,
        message=result.message[: limits.ERROR_TEXT_MAX],
        retry_after_ms=result.retry_after_ms,
        provider=state.provider,
        model=state.model,
        duration_ms=result.duration_ms,
        failure_class=fallback.failure_class(result.kind),
        takes_iteration=takes_iteration,
    )
    if result.kind == fallback.CONTEXT_EXCEEDED and (shorter := compaction.compact_after_overflow(facts)) is not None:
        # A paused run makes the call again first: its pause begins between two attempts.
        return [failed, next_model_attempt(state, 0) if facts.pauses else shorter]
    if wait_ms is not None:
        return [failed, next_model_attempt(state, result.at_ms + wait_ms, retry=state.failures + state.rate_limits + 1)]
    if switched is not None:
        there = replace(state, provider=switched.provider, model=switched.model)
        return [failed, *passed_over, switched, next_model_attempt(there, 0)]
    return [failed, *passed_over, run_failed(facts, fallback.run_failure_code(result.kind), result.message)]


def _is_provider_wait(result: ModelFailed) -> bool:
    return fallback.is_provider_wait(result.kind, retries_rate_limits=result.retries_rate_limits)


def _is_free_retry(result: ModelFailed) -> bool:
    """Whether another attempt takes no iteration."""
    return result.kind == fallback.STALE_CONNECTION or _is_provider_wait(result)


def retry_wait_ms(state: AwaitingModel, result: ModelFailed) -> int | None:
    """Return the milliseconds to wait before the next attempt; None when the turn has failed (runtime parity 1.8)."""
    if not result.transient:
        return None
    if _is_provider_wait(result):
        if state.rate_limits + 1 >= limits.RATE_LIMIT_ATTEMPTS:
            return None
        wait_ms = result.retry_after_ms or limits.RATE_LIMIT_BACKOFF_MS[state.rate_limits]
        return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None
    if result.kind == fallback.STALE_CONNECTION and not state.failures:
        return 0  # whatever the definition allows: the provider has not received the request
    allowed = min(state.facts.definition.retry_attempts, limits.RETRY_ATTEMPTS_MAX)
    tried = state.failures + (state.rate_limits if not result.retries_rate_limits else 0)
    if tried >= allowed:
        return None
    wait_ms = max(limits.RETRY_BACKOFF_MS[tried], result.retry_after_ms)
    return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None
