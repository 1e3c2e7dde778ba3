"""Compaction: at a turn boundary the older part of the conversation is replaced by a summary.

    trigger         manual  CompactRun, of a parked run                  self  the run, with its Context tool
                    auto    the fill of the context that its definition sets, at most every other turn
                    overflow  a call that the provider refused because the conversation is longer than the model's
                            window, once for each turn; unless the definition switches compactions off
    then            CompactionRequested (the split)  ->  the summary call  ->  ContextCompacted | CompactionFailed
    and then        what would have followed without it: the next model call, the pause, parking, the end of a seed;
                    after an overflow the next attempt of the turn, or the end of the run when nothing was gained

A failed compaction changes nothing but the cost. The summary call is never retried: the next occasion is a turn or two
away. A call lost with its owner is repeated, unless the run is to pause.

A seed is a run without a turn of its own: it holds the conversation of a session for the runs that continue it, as it
is or as a summary, so that a session without a live run can be compacted or copied to another agent.

Before: compaction_split.py decides which messages stay. After: services/core/run/decide.py adds what follows;
services/runtime makes the call.
"""

import json
from typing import TypeVar

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
    RunCompleted,
    RunFailed,
    RunParked,
    ToolReturned,
)
from loomlog.schemas.generated.values import AgentDefinition, Compaction
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    CommandRefusal,
    CompactCommand,
    RecoverCommand,
    SummaryCompleted,
    SummaryFailed,
)
from loomlog.services.core.run.conversation.compaction_split import (
    OVERFLOW,
    CompactionSplit,
    apply_split,
    estimate_tokens,
    omitted_messages,
    plan_split,
)
from loomlog.services.core.run.conversation.conversation import join_waiting_inputs, used_tokens
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.run_facts import NO_USAGE, Pause, RunFacts
from loomlog.services.core.run.state import Absent, AwaitingModel, Compacting, LiveState, Parked, State
from loomlog.services.core.run.turns.code_agents import is_code_agent

FieldValue = TypeVar("FieldValue", bool, int, str)
MANUAL, AUTO, SELF = "manual", "auto", "self"
COPY, COMPACT = "copy", "compact"
"""Modes of a seed: hold the conversation as it is, or as a summary."""
SEEDS = (COPY, COMPACT)
BUSY = "run_busy"
NOTHING_TO_COMPACT = "nothing_to_compact"
EMPTY_SOURCE = "empty_source"
"""Codes of refusals."""
NO_GAIN, EMPTY, TRUNCATED_SUMMARY, INTERRUPTED = "no_gain", "empty", "cut", "interrupted"
"""Kinds of failure that are not the provider's."""


class CompactionPolicy(Value, frozen=True, kw_only=True):
    """Settings of compaction, with the defaults of the reference. Percentages of 100."""

    enabled: bool = False
    target_percentage: int = 10
    keep_last_n: int = 4
    keep_first: bool = True
    autocompact_at_pct: int = 80
    memory_flush: bool = False
    """What is left out is kept as a pending entry of the memory that the run may use."""


DEFAULT_POLICY = CompactionPolicy()


def policy_of(definition: AgentDefinition) -> CompactionPolicy:
    """Return the policy of a run of this definition."""
    compaction = definition.compaction
    if compaction is None:
        return DEFAULT_POLICY
    return CompactionPolicy(
        enabled=DEFAULT_POLICY.enabled if compaction.enabled is None else compaction.enabled,
        # A StartRun of a microservice may have any value; transports refuse values out of range.
        target_percentage=_within(compaction.target_percentage or DEFAULT_POLICY.target_percentage, limits.TARGET_PCT),
        keep_last_n=DEFAULT_POLICY.keep_last_n if compaction.keep_last_n is None else compaction.keep_last_n,
        keep_first=DEFAULT_POLICY.keep_first if compaction.keep_first is None else compaction.keep_first,
        autocompact_at_pct=_within(compaction.autocompact_at_pct or DEFAULT_POLICY.autocompact_at_pct, limits.AUTO_PCT),
        memory_flush=bool(compaction.memory_flush),
    )


def parse_overrides(text: str) -> Compaction | None:
    """Parse the overrides in a JSON object written by a model; None if there are none. Values of a wrong type are
    ignored.
    """
    try:
        payload = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    values: dict[str, object] = payload

    def of(name: str, kind: type[FieldValue]) -> FieldValue | None:
        value = values.get(name)
        return value if isinstance(value, kind) and not (kind is int and isinstance(value, bool)) else None

    return Compaction(
        enabled=of("enabled", bool),
        target_percentage=of("target_percentage", int),
        keep_last_n=of("keep_last_n", int),
        keep_first=of("keep_first", bool),
        autocompact_at_pct=of("autocompact_at_pct", int),
        model=of("model", str) or "",
    )


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def merge_compaction(base: Compaction | None, over: Compaction | None) -> Compaction | None:
    """Merge two policies: `over` wins in every field it sets; a model of another provider comes with it."""
    if base is None or over is None:
        return over or base
    return Compaction(
        enabled=base.enabled if over.enabled is None else over.enabled,
        target_percentage=over.target_percentage or base.target_percentage,
        keep_last_n=base.keep_last_n if over.keep_last_n is None else over.keep_last_n,
        keep_first=base.keep_first if over.keep_first is None else over.keep_first,
        autocompact_at_pct=over.autocompact_at_pct or base.autocompact_at_pct,
        provider=over.provider if over.model else base.provider,
        model=over.model or base.model,
        memory_flush=base.memory_flush if over.memory_flush is None else over.memory_flush,
    )


# --- when ------------------------------------------------------------------------------------------------------------


def due_after_events(state: State, events: list[Event], at_ms: int) -> CompactionRequested | None:
    """Return the compaction that is due at the turn boundary after these events, of a run that no pause holds; None:
    the next turn.
    """
    is_requested = any(
        isinstance(event, ToolReturned) and event.details is not None and event.details.asks_compaction
        for event in events
    )
    facts: RunFacts | None = getattr(state, "facts", None)
    if facts is None or not (is_requested or may_be_due(facts)):
        return None
    for event in events:
        state = evolve(state, event, at_ms)
    after: RunFacts | None = getattr(state, "facts", None)
    return due_compaction(after) if after is not None else None


def due_before_first_turn(
    state: Absent, started: list[Event], definition: AgentDefinition, at_ms: int
) -> CompactionRequested | None:
    """Return the compaction that is due before the first turn of a run that continues a session;
    None: the first turn.
    """
    if not state.history or not policy_of(definition).enabled:
        return None
    after: State = state
    for event in started:
        after = evolve(after, event, at_ms)
    assert isinstance(after, AwaitingModel)
    return due_compaction(after.facts)


def may_be_due(facts: RunFacts) -> bool:
    """Cheap check: false for most runs."""
    return facts.compactions.is_requested or policy_of(facts.definition).enabled


def due_compaction(facts: RunFacts) -> CompactionRequested | None:
    """Return the compaction before the next turn."""
    if facts.compactions.is_requested:
        return request_compaction(facts, SELF)
    policy = policy_of(facts.definition)
    window, next_turn = facts.max_context_tokens, facts.turns + 1
    if not policy.enabled or not window or next_turn <= facts.compactions.last_turn + 1:
        return None
    if used_tokens(join_waiting_inputs(facts)) * 100 < window * policy.autocompact_at_pct:
        return None
    return request_compaction(facts, AUTO)


def request_compaction(facts: RunFacts, trigger: str) -> CompactionRequested | None:
    """Return the intent; None if nothing could be left out, as in the record that a script continues from."""
    if is_code_agent(facts.definition):
        return None
    policy = policy_of(facts.definition)
    messages = join_waiting_inputs(facts).messages
    how = plan_split(
        messages,
        # After an overflow as little as possible stays: the turn is repeated once only.
        keep_last_n=0 if trigger == OVERFLOW else policy.keep_last_n,
        keep_first=policy.keep_first,
        tail_tokens_max=_tail_tokens_max(facts.max_context_tokens, is_over=bool(facts.seed)),
        is_over=bool(facts.seed),
    )
    if how is None:
        return None
    compaction, current = facts.definition.compaction or Compaction(), facts.current_model
    return CompactionRequested(
        number=facts.compactions.count + 1,
        turn=facts.turns + 1,
        trigger=trigger,
        keep_n=how.keep_n,
        keep_first=how.keep_first,
        before_tokens=estimate_tokens(messages),
        # An override names a model of the definition's provider, which the run may have left.
        provider=compaction.provider or (facts.definition.provider if compaction.model else current.provider),
        model=compaction.model or current.model,
    )


def _tail_tokens_max(window: int, *, is_over: bool) -> int:
    """Return the limit of the tail; of a conversation that is over also when the window is not known."""
    if is_over and not window:
        return limits.COMPACTION_TOKENS_MIN
    return window * limits.COMPACTION_TAIL_PCT // 100


def compact_after_overflow(facts: RunFacts) -> CompactionRequested | None:
    """Return the compaction after a call that was refused because the conversation is too long; None when there is
    nothing to leave out, when there was one before this turn, or when the definition says so.
    """
    compaction = facts.definition.compaction
    if facts.compactions.overflows or (compaction is not None and compaction.enabled is False):
        return None
    return request_compaction(facts, OVERFLOW)


def compact_run(state: State, request: CompactCommand) -> list[Event]:
    """Compact a run that waits for input; any other is busy."""
    if not isinstance(state, LiveState):
        return []
    facts = state.facts
    if not isinstance(state, Parked) or facts.pauses:
        why = "is paused: resume it first" if facts.pauses else "is in the middle of a turn: wait until it is parked"
        return [CommandRefused(code=BUSY, message=f"{BUSY}: the run {facts.run_id} {why}")]
    intent = request_compaction(facts, MANUAL)
    return [intent if intent is not None else _refuse_too_short(facts)]


# --- results ---------------------------------------------------------------------------------------------------------


def complete_compaction(state: State, result: SummaryCompleted) -> ContextCompacted | CompactionFailed | None:
    """Return the end of the compaction with this summary; None if the state does not wait for it."""
    if not _is_awaited(state, result):
        return None
    assert isinstance(state, Compacting)
    facts = state.facts
    if result.is_truncated:
        # A truncated summary lacks its end, and nothing would show it.
        return _failed_with_usage(
            state, result, TRUNCATED_SUMMARY, "the summary was cut off at the bound of its length"
        )
    summary = result.summary
    shorter = apply_split(facts.messages, summary, state.split) if summary else ()
    after = estimate_tokens(shorter)
    if not summary or after >= state.before_tokens:
        kind = NO_GAIN if summary else EMPTY
        why = (
            f"the conversation would have {after} tokens instead of {state.before_tokens}"
            if summary
            else "the model gave no summary"
        )
        return _failed_with_usage(state, result, kind, why)
    return copy_as(
        ContextCompacted,
        result,
        turn=facts.turns + 1,
        trigger=state.trigger,
        summary=summary,
        before_tokens=state.before_tokens,
        after_tokens=after,
        keep_n=state.keep_n,
        keep_first=state.keep_first,
    )


def fail_compaction(state: State, result: SummaryFailed) -> CompactionFailed | None:
    """Return the end of the compaction whose call failed; None if the state does not wait for it."""
    if not _is_awaited(state, result):
        return None
    assert isinstance(state, Compacting)
    return replace(_failure(state, result.kind, result.message), duration_ms=result.duration_ms)


def recover_compaction(state: Compacting, command: RecoverCommand) -> CompactionRequested | CompactionFailed | None:
    """Recover a summary call that was lost with its owner or not started; None while it is still under way."""
    if ("compact", state.number, 0, state.attempt) in command.still_running:
        return None
    if state.facts.pauses or (not state.is_unstarted and state.losses + 1 >= limits.COMPACTION_LOSSES_MAX):
        return _failure(state, INTERRUPTED, "the owner of the run was lost before the summary call returned")
    return CompactionRequested(
        number=state.number,
        attempt=state.attempt + 1,
        turn=state.facts.turns + 1,
        trigger=state.trigger,
        keep_n=state.keep_n,
        keep_first=state.keep_first,
        before_tokens=state.before_tokens,
        provider=state.provider,
        model=state.model,
    )


def seed_refusal(
    history: tuple[Message, ...], command: StartRun, definition: AgentDefinition | None, pauses: tuple[Pause, ...]
) -> CommandRefusal | None:
    """Return why a session cannot be held by this seed."""
    if command.seed not in SEEDS or not command.session_id or command.segments or command.prompt:
        why = f"a seed is {' or '.join(SEEDS)}, goes on with a session and says nothing itself"
        return CommandRefusal(code="bad_request", message=why)
    return history_refusal(history, command.seed, pauses) or _length_refusal(history, definition)


def history_refusal(history: tuple[Message, ...], seed: str, pauses: tuple[Pause, ...]) -> CommandRefusal | None:
    """Return why this conversation cannot be held now."""
    if not history:
        return CommandRefusal(code=EMPTY_SOURCE, message=f"{EMPTY_SOURCE}: nothing was said in the session")
    if pauses and seed == COMPACT:
        return CommandRefusal(
            code="runtime_paused", message=f"no summary is made while it is paused: {pauses[0].reason}"
        )
    return None


def begin_seed(state: State, started: list[Event], at_ms: int) -> list[Event]:
    """Return what follows the start of a seed: the requested summary, or its end."""
    for event in started:
        state = evolve(state, event, at_ms)
    assert isinstance(state, AwaitingModel)
    facts = state.facts
    intent = request_compaction(facts, MANUAL) if facts.seed == COMPACT else None
    return [intent if intent is not None else end_seed(facts, None)]


def _length_refusal(history: tuple[Message, ...], definition: AgentDefinition | None) -> CommandRefusal | None:
    """Refuse a session that cannot get shorter."""
    policy = policy_of(definition) if definition is not None else DEFAULT_POLICY
    how = plan_split(
        history,
        keep_last_n=policy.keep_last_n,
        keep_first=policy.keep_first,
        tail_tokens_max=_tail_tokens_max(0, is_over=True),
        is_over=True,
    )
    if how is not None:
        return None
    return CommandRefusal(code=NOTHING_TO_COMPACT, message=f"{NOTHING_TO_COMPACT}: the conversation is too short")


def end_seed(facts: RunFacts, failure: CompactionFailed | None) -> RunCompleted | RunFailed:
    """End a seed: completed, or failed with its compaction."""
    if failure is not None and failure.kind != NO_GAIN:
        error = f"the conversation could not be summarised: {failure.message}"
        return RunFailed(
            code="compaction_failed",
            error=error[: limits.ERROR_TEXT_MAX],
            usage=facts.usage,
            cost_micros=facts.cost_micros,
            currency=facts.currency,
        )
    return RunCompleted(
        stop_reason="compacted" if facts.compactions.count and failure is None else "seeded",
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )


def returns_to_parked(state: Compacting) -> bool:
    """Whether the run was parked and has nothing to answer."""
    return state.trigger == MANUAL and not state.facts.seed and not state.facts.waiting_inputs


def park_again(facts: RunFacts) -> RunParked:
    return RunParked(since_turn=facts.turns)


def summary_tokens(facts: RunFacts, split_plan: CompactionSplit) -> int:
    """Return the limit of a summary, in tokens."""
    target = (
        estimate_tokens(omitted_messages(facts.messages, split_plan))
        * policy_of(facts.definition).target_percentage
        // 100
    )
    return min(max(target, limits.SUMMARY_TOKENS_MIN), limits.SUMMARY_TOKENS_MAX)


def _is_awaited(state: State, result: SummaryCompleted | SummaryFailed) -> bool:
    return isinstance(state, Compacting) and (state.number, state.attempt) == (result.number, result.attempt)


def _refuse_too_short(facts: RunFacts) -> CommandRefused:
    return CommandRefused(
        code=NOTHING_TO_COMPACT, message=f"{NOTHING_TO_COMPACT}: the conversation of {facts.run_id} is too short"
    )


def _failed_with_usage(state: Compacting, result: SummaryCompleted, kind: str, why: str) -> CompactionFailed:
    failure = _failure(state, kind, why)
    return copy_as(
        CompactionFailed, result, turn=failure.turn, trigger=failure.trigger, kind=kind, message=failure.message
    )


def _failure(state: Compacting, kind: str, why: str) -> CompactionFailed:
    return CompactionFailed(
        number=state.number,
        attempt=state.attempt,
        turn=state.facts.turns + 1,
        trigger=state.trigger,
        kind=kind,
        message=why[: limits.ERROR_TEXT_MAX],
        usage=NO_USAGE,
        provider=state.provider,
        model=state.model,
    )
