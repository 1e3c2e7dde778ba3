"""End of a run with its usage and cost, and its limit of iterations.

Before: the decision that ends the run. After: RunCompleted, RunFailed or RunCancelled, the last event of a run.
"""

from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelAnswered
from loomlog.services.core.run.run_facts import RunFacts, add_usage

MAX_ITERATIONS = "max_iterations"
"""Stop reason of a run that may make no further turn."""
OUTPUT_INVALID = "output_invalid"
"""Code of a run that gave no record although it has an output schema."""


def iteration_cap(facts: RunFacts) -> int:
    """Return the largest number of model turns of the run, with retries and fallbacks of its own
    (runtime parity 1.5).
    """
    definition = facts.definition
    if definition.unbounded_iterations or (facts.options.interactive and definition.max_iterations == 0):
        return limits.ITERATIONS_BACKSTOP
    return min(definition.max_iterations or limits.MAX_ITERATIONS_DEFAULT, limits.ITERATIONS_BACKSTOP)


def has_iterations(facts: RunFacts, turn: int) -> bool:
    """Whether another call may be made after `turn`, or after a call of it that has failed."""
    return turn + facts.retries < iteration_cap(facts)


def owes_record(facts: RunFacts) -> bool:
    """Whether the run has to end with a record. An interactive run has a conversation and no final answer."""
    return bool(facts.definition.output_schema_sha256) and not facts.options.interactive


def run_completed(facts: RunFacts, stop_reason: str, last: ModelAnswered | None, result: str = "") -> RunCompleted:
    """Complete the run; `last` is the answer that is decided together with the end and not folded yet, `result` the
    record in it.
    """
    facts = _with_answer(facts, last)
    return RunCompleted(
        stop_reason=stop_reason,
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
        result=result,
    )


def turns_used_up(facts: RunFacts, last: ModelAnswered | None) -> RunCompleted | RunFailed:
    """End a run that may make no further turn. One that owes a record has failed without it."""
    if not owes_record(facts):
        return run_completed(facts, MAX_ITERATIONS, last)
    cap = iteration_cap(facts)
    return run_failed(facts, OUTPUT_INVALID, f"{OUTPUT_INVALID}: the run used its {cap} turns and gave no record", last)


def run_failed(facts: RunFacts, code: str, error: str, last: ModelAnswered | None = None) -> RunFailed:
    """Fail the run; `last` as in run_completed."""
    facts = _with_answer(facts, last)
    return RunFailed(
        code=code,
        error=error[: limits.ERROR_TEXT_MAX],
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )


def _with_answer(facts: RunFacts, last: ModelAnswered | None) -> RunFacts:
    if last is None:
        return facts
    return replace(
        facts,
        turns=facts.turns + 1,
        usage=add_usage(facts.usage, last.usage),
        cost_micros=facts.cost_micros + last.cost_micros,
        currency=last.currency or facts.currency,
    )


def run_cancelled(facts: RunFacts, reason: str, cascaded: tuple[str, ...] = ()) -> RunCancelled:
    return RunCancelled(
        cascaded=cascaded,
        reason=reason[: limits.ERROR_TEXT_MAX],
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )
