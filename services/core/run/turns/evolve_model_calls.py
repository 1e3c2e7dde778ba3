"""State after an event of a model call: requested, answered, failed, switched to another model, rejected, stopped.

Before: services/core/run/evolve.py. After: AwaitingModel while attempts continue, AwaitingTools once there is an answer
(also one without tool calls: what follows it comes in the same batch).
"""

from loomlog.schemas.conversation import Message, TextBlock, ToolUseBlock
from loomlog.schemas.generated.run_events import (
    FallbackSuppressed,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ModelSwitched,
    OutputRejected,
    TurnCancelled,
)
from loomlog.schemas.generated.values import ModelChoice
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run.conversation.conversation import prepare_next_turn, without_reasoning
from loomlog.services.core.run.run_facts import ContextGauge, add_usage, extend_deadline
from loomlog.services.core.run.state import (
    AwaitingModel,
    AwaitingTools,
    IllegalEvent,
    Parked,
    Paused,
    State,
    require_facts,
)
from loomlog.services.core.run.turns.evolve_boundaries import attempts_made, check_not_compacting
from loomlog.services.core.run.turns.fallback import INTERRUPTED


def apply_model_requested(state: State, event: ModelCallRequested, at_ms: int) -> AwaitingModel:
    facts = require_facts(state, event)
    check_not_compacting(state, event)
    same_turn = isinstance(state, AwaitingModel) and state.turn == event.turn
    if isinstance(state, AwaitingModel) and same_turn:
        if event.attempt != state.attempt + 1:
            raise IllegalEvent(f"attempt {event.attempt} of turn {event.turn} after attempt {state.attempt}")
        return replace(
            state,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            not_before_ms=event.not_before_ms,
            is_unstarted=False,
            # The wait of a lost owner continues with the next one: it is the same wait, not a second.
            waited_ms=state.waited_ms + max(0, event.not_before_ms - max(at_ms, state.not_before_ms)),
        )
    if isinstance(state, (Paused, Parked)):
        facts = extend_deadline(facts, state.since_ms, at_ms)
    if isinstance(state, Paused):
        if facts.pauses:
            raise IllegalEvent(f"a call of turn {event.turn} while the run is paused")
        if (event.turn, event.attempt) != (state.turn, state.attempt + 1):
            raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} after a pause before turn {state.turn}")
        return AwaitingModel(
            facts=prepare_next_turn(facts) if event.attempt == 1 else facts,
            turn=event.turn,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            not_before_ms=event.not_before_ms,
            failures=state.failures,
            rate_limits=state.rate_limits,
            waited_ms=state.waited_ms,
            lost_attempts=state.lost_attempts,
        )
    if event.turn != facts.turns + 1 or event.attempt != attempts_made(state) + 1:
        raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} after {facts.turns} turns")
    return AwaitingModel(
        facts=prepare_next_turn(facts),
        turn=event.turn,
        attempt=event.attempt,
        provider=event.provider,
        model=event.model,
        not_before_ms=event.not_before_ms,
    )


def apply_model_replied(state: State, event: ModelReplied) -> AwaitingTools:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"a reply to turn {event.turn} attempt {event.attempt} that is not awaited")
    blocks = (TextBlock(text=event.text, blob=event.text_blob),) if event.text or event.text_blob else ()
    calls = [ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in event.tool_calls]
    message = Message(
        role="assistant",
        blocks=(*blocks, *calls),
        reasoning=event.reasoning,
        reasoning_signature=event.reasoning_signature,
    )
    # Providers would refuse an answer without text and calls when it is sent back.
    messages = (*state.facts.messages, message) if message.blocks else state.facts.messages
    spent = event.usage
    read = spent.input_tokens + spent.cache_creation_input_tokens + spent.cache_read_input_tokens
    # A request has tokens, so zero means that they were not counted: the known size of the context is kept.
    counted = ContextGauge(tokens=read + spent.output_tokens, messages=len(messages)) if read else state.facts.context
    compactions = state.facts.compactions
    facts = replace(
        state.facts,
        messages=messages,
        context=counted,
        compactions=replace(compactions, overflows=0) if compactions.overflows else compactions,
        turns=event.turn,
        is_turn_over=not event.tool_calls,
        usage=add_usage(state.facts.usage, event.usage),
        last_usage=event.usage,
        max_context_tokens=event.max_context_tokens,
        cost_micros=state.facts.cost_micros + event.cost_micros,
        currency=event.currency or state.facts.currency,
        tool_lists=event.tool_lists or state.facts.tool_lists,
    )
    return AwaitingTools(facts=facts, turn=event.turn, requested_calls=event.tool_calls)


def apply_model_failed(state: State, event: ModelCallFailed) -> AwaitingModel:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"a failure of turn {event.turn} attempt {event.attempt} that is not awaited")
    facts = replace(
        state.facts,
        model_errors=state.facts.model_errors + 1,
        retries=state.facts.retries + event.takes_iteration,
    )
    if event.kind == INTERRUPTED:
        return replace(state, facts=facts, lost_attempts=state.lost_attempts + 1)
    if event.kind in ("rate_limited", PROVIDER_FULL):
        return replace(state, facts=facts, rate_limits=state.rate_limits + 1)
    return replace(state, facts=facts, failures=state.failures + 1)


def require_failed_attempt(state: State, event: ModelSwitched | FallbackSuppressed) -> AwaitingModel:
    """Return the state if a call of this attempt has failed in it."""
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"{type(event).__name__} after turn {event.turn} attempt {event.attempt}, not awaited")
    return state


def apply_model_switched(state: State, event: ModelSwitched) -> AwaitingModel:
    awaiting = require_failed_attempt(state, event)
    facts = awaiting.facts
    if event.number != facts.switches + 1:
        raise IllegalEvent(f"switch {event.number} of a run that has made {facts.switches}")
    facts = replace(
        facts,
        choice=ModelChoice(provider=event.provider, model=event.model, effort=event.effort),
        switches=event.number,
        messages=tuple(map(without_reasoning, facts.messages)) if event.reasoning_cleared else facts.messages,
    )
    # The new model has no failures yet, so its retries and its waits are counted from zero.
    return replace(
        awaiting,
        facts=facts,
        provider=event.provider,
        model=event.model,
        failures=0,
        rate_limits=0,
        waited_ms=0,
    )


def apply_turn_cancelled(state: State, event: TurnCancelled) -> AwaitingTools:
    match state:
        case AwaitingTools(turn=event.turn) if len(state.results) == len(state.requested_calls) and not event.attempt:
            return replace(state, facts=replace(state.facts, is_turn_over=True))
        case AwaitingModel(turn=event.turn, attempt=event.attempt, facts=facts):
            content = event.text or event.text_blob
            blocks = (TextBlock(text=event.text, blob=event.text_blob),) if content else ()
            messages = (*facts.messages, Message(role="assistant", blocks=blocks)) if blocks else facts.messages
            facts = replace(facts, messages=messages, turns=event.turn, is_turn_over=True)
            return AwaitingTools(facts=facts, turn=event.turn, requested_calls=())
    raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} is cancelled and not under way")


def apply_output_rejected(state: State, event: OutputRejected) -> AwaitingTools:
    """Return the state in which the model has been told what is wrong with its answer."""
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or state.requested_calls:
        raise IllegalEvent(f"the answer of turn {event.turn} is rejected and not there")
    facts = state.facts
    if event.number != facts.rejected_outputs + 1:
        raise IllegalEvent(f"answer {event.number} is rejected after {facts.rejected_outputs}")
    correction = Message(role="user", blocks=(TextBlock(text=event.problem),))
    return replace(state, facts=replace(facts, messages=(*facts.messages, correction), rejected_outputs=event.number))
