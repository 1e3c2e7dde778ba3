"""State after an event between two turns: pauses requested, begun and lifted, compactions begun and ended.

Before: services/core/run/evolve.py. After: Paused, Compacting, or the same state with other facts.
"""

from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    RunPaused,
    RunPauseRequested,
    RunResumed,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.compaction_split import OVERFLOW, CompactionSplit, apply_split
from loomlog.services.core.run.conversation.conversation import join_waiting_inputs, used_tokens
from loomlog.services.core.run.run_facts import CompactionState, ContextGauge, Pause, add_usage, extend_deadline
from loomlog.services.core.run.state import (
    AwaitingModel,
    AwaitingTools,
    Compacting,
    IllegalEvent,
    Parked,
    Paused,
    State,
    require_facts,
    with_facts,
)


def apply_pause_requested(state: State, event: RunPauseRequested, pause: Pause) -> State:
    facts = require_facts(state, event)
    if any(held.scope == pause.scope for held in facts.pauses):
        raise IllegalEvent(f"a second pause of scope {pause.scope}")
    return with_facts(state, replace(facts, pauses=(*facts.pauses, pause)))


def apply_paused(state: State, event: RunPaused, at_ms: int) -> Paused:
    facts = require_facts(state, event)
    check_not_compacting(state, event)
    if not facts.pauses or isinstance(state, Paused) or event.turn != facts.turns + 1:
        raise IllegalEvent(f"RunPaused before turn {event.turn} of a run that is {type(state).__name__}")
    if isinstance(state, AwaitingModel) and state.turn == event.turn:
        # This is between two attempts of a turn, so the next attempt continues the count.
        return Paused(
            facts=facts,
            turn=event.turn,
            attempt=state.attempt,
            not_before_ms=event.not_before_ms,
            failures=state.failures,
            rate_limits=state.rate_limits,
            waited_ms=state.waited_ms + max(0, event.not_before_ms - max(at_ms, state.not_before_ms)),
            lost_attempts=state.lost_attempts,
            since_ms=at_ms,
        )
    if isinstance(state, Parked):
        facts = extend_deadline(facts, state.since_ms, at_ms)
    return Paused(facts=facts, turn=event.turn, attempt=attempts_made(state), since_ms=at_ms)


def apply_compaction_requested(state: State, event: CompactionRequested, at_ms: int) -> Compacting:
    facts = require_facts(state, event)
    if isinstance(state, Compacting) and event.number == state.number:
        if event.attempt != state.attempt + 1 or state.attempt == 0:
            raise IllegalEvent(f"attempt {event.attempt} of compaction {event.number} after attempt {state.attempt}")
        lost = 0 if state.is_unstarted else 1
        return replace(
            state,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            losses=state.losses + lost,
            is_unstarted=False,
        )
    nothing_is_open = (
        isinstance(state, Parked | Paused)
        or (isinstance(state, AwaitingModel) and (state.attempt == 0 or event.trigger == OVERFLOW))
        or (isinstance(state, AwaitingTools) and len(state.results) == len(state.requested_calls))
    )
    if not nothing_is_open or facts.pauses or event.turn != facts.turns + 1:
        raise IllegalEvent(f"a compaction before turn {event.turn} of a run that is {type(state).__name__}")
    if isinstance(state, Parked | Paused):
        facts = extend_deadline(facts, state.since_ms, at_ms)
    facts = join_waiting_inputs(facts)
    if (event.number, event.attempt) != (facts.compactions.count + 1, 1) or event.keep_n > len(facts.messages):
        raise IllegalEvent(f"compaction {event.number} after {facts.compactions.count} of them")
    overflows = facts.compactions.overflows + (event.trigger == OVERFLOW)
    begun = CompactionState(count=event.number, last_turn=event.turn, overflows=overflows)
    return Compacting(
        facts=replace(facts, compactions=begun),
        number=event.number,
        attempt=1,
        trigger=event.trigger,
        keep_n=event.keep_n,
        keep_first=event.keep_first,
        before_tokens=event.before_tokens,
        provider=event.provider,
        model=event.model,
        model_attempt=state.attempt if isinstance(state, AwaitingModel) else 0,
    )


def apply_compaction_ended(state: State, event: ContextCompacted | CompactionFailed) -> Compacting:
    if not isinstance(state, Compacting) or (state.number, state.attempt) != (event.number, event.attempt):
        raise IllegalEvent(f"the end of compaction {event.number} attempt {event.attempt} that is not awaited")
    facts = state.facts
    if isinstance(event, ContextCompacted):
        how = CompactionSplit(keep_n=event.keep_n, keep_first=event.keep_first)
        messages = apply_split(facts.messages, event.summary, how)
        made = len(messages) - how.keep_n
        gone = len(facts.messages) - how.keep_n
        # The provider's count shrinks in proportion to the estimate; its next answer has the exact count.
        tokens = used_tokens(facts) * event.after_tokens // max(1, event.before_tokens)
        facts = replace(
            facts,
            messages=messages,
            inherited_messages=made + max(0, facts.inherited_messages - gone),
            context=ContextGauge(tokens=tokens, messages=len(messages)),
        )
    facts = replace(
        facts,
        usage=add_usage(facts.usage, event.usage),
        cost_micros=facts.cost_micros + event.cost_micros,
        currency=event.currency or facts.currency,
    )
    return replace(state, facts=facts, attempt=0)


def attempts_made(state: State) -> int:
    """Return the attempts of the next turn that were made before a compaction: the next one continues their count."""
    return state.model_attempt if isinstance(state, Compacting) else 0


def check_not_compacting(state: State, event: object) -> None:
    if isinstance(state, Compacting) and state.attempt:
        raise IllegalEvent(f"{type(event).__name__} during compaction {state.number}")


def apply_resumed(state: State, event: RunResumed) -> State:
    facts = require_facts(state, event)
    pauses = tuple(held for held in facts.pauses if held.scope != event.scope)
    if len(pauses) == len(facts.pauses) or len(pauses) != event.remaining:
        raise IllegalEvent(f"RunResumed of scope {event.scope} with {event.remaining} left, held by {facts.pauses}")
    return with_facts(state, replace(facts, pauses=pauses))
