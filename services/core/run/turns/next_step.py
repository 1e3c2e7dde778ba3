"""Next step after a turn, an attempt or a tool call: the next call, held back or not, a compaction, or the end.

Every decision that continues a run ends here, so that a pause, a due compaction and the limit of iterations are checked
in one place.

Before: services/core/run/decide.py and its parts. After: the events of completion.py, or ModelCallRequested, RunPaused,
CompactionRequested.
"""

from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
    InterruptionClosed,
    ModelCallRequested,
    RunPaused,
    ToolReturned,
)
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle import pause
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import OUTCOME_UNKNOWN, AwaitingModel, AwaitingTools, Compacting, Parked, State
from loomlog.services.core.run.tools import unknown_outcome
from loomlog.services.core.run.turns import fallback
from loomlog.services.core.run.turns.completion import has_iterations, run_failed, turns_used_up


def after_tools(state: AwaitingTools, events: list[Event], at_ms: int) -> list[Event]:
    """Return what follows the events, which hold results: the next turn once all calls have one."""
    if len(state.results) + unknown_outcome.count_results(events) < len(state.requested_calls):
        return []
    if not has_iterations(state.facts, state.turn):
        return [turns_used_up(state.facts, None)]
    return [next_step(state, events, state.turn, at_ms)]


def next_step(state: State, events: list[Event], turn: int, at_ms: int) -> Event:
    """Return what follows `turn` after these events, at a turn boundary: a compaction that is due, or the next turn."""
    assert isinstance(state, (AwaitingModel, AwaitingTools, Parked))
    if (
        not state.facts.pauses
        and (compaction := conversation_compaction.due_after_events(state, events, at_ms)) is not None
    ):
        return compaction
    return next_turn(state.facts, turn)


def after_compaction(
    state: State, outcome: ContextCompacted | CompactionFailed | CompactionRequested | None, at_ms: int
) -> list[Event]:
    """Return the end of a compaction with what would have come without it."""
    if outcome is None or isinstance(outcome, CompactionRequested):
        return [] if outcome is None else [outcome]
    after = evolve(state, outcome, at_ms)
    assert isinstance(after, Compacting)
    facts = after.facts
    if facts.seed:
        return [
            outcome,
            conversation_compaction.end_seed(facts, outcome if isinstance(outcome, CompactionFailed) else None),
        ]
    if conversation_compaction.returns_to_parked(after):
        return [outcome, conversation_compaction.park_again(facts)]
    if after.model_attempt and isinstance(outcome, CompactionFailed) and not facts.pauses:
        error = f"the conversation is longer than the model's window, and was not compacted: {outcome.message}"
        return [outcome, run_failed(facts, fallback.run_failure_code(fallback.CONTEXT_EXCEEDED), error)]
    return [outcome, next_turn(facts, facts.turns, after.model_attempt)]


def with_next_step(state: AwaitingTools, events: list[Event], at_ms: int) -> list[Event]:
    """Append the next turn when the events answer the last open calls, or the end when the run may not continue."""
    if unknown_outcome.must_fail_run(state, events):
        # Nothing may start in a run that ends with the same decision.
        kept: list[Event] = [event for event in events if isinstance(event, ToolReturned | InterruptionClosed)]
        return [*kept, run_failed(state.facts, OUTCOME_UNKNOWN, "the outcome of a tool call is not known")]
    return [*events, *(after_tools(state, events, at_ms) if unknown_outcome.count_results(events) else [])]


def next_turn(facts: RunFacts, turn: int, attempts_made: int = 0) -> ModelCallRequested | RunPaused:
    """Return the call after `turn`, or the event that holds it back. `attempts_made`: attempts of the next turn that
    failed before a compaction.
    """
    if facts.pauses:
        return pause.run_paused(facts.pauses, turn + 1)
    current = facts.current_model
    return ModelCallRequested(turn=turn + 1, attempt=attempts_made + 1, provider=current.provider, model=current.model)


def next_model_attempt(state: AwaitingModel, not_before_ms: int, *, retry: int = 0) -> ModelCallRequested | RunPaused:
    """Return the next call of the same turn after a failed one, or the event that holds it back."""
    if state.facts.pauses:
        return pause.run_paused(state.facts.pauses, state.turn, not_before_ms)
    return ModelCallRequested(
        turn=state.turn,
        attempt=state.attempt + 1,
        provider=state.provider,
        model=state.model,
        not_before_ms=not_before_ms,
        retry=retry,
    )
