"""End of a run with its usage and cost, and its limit of iterations.

Before: the decision that ends the run. After: RunCompleted, RunFailed or RunCancelled, the last event of a run.
"""

from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed
from loomlog.schemas.generated.values import Usage
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelAnswered
from loomlog.services.core.run.run_facts import RunFacts, add_usage

NO_USAGE = Usage()


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


def run_completed(facts: RunFacts, stop_reason: str, last: ModelAnswered | None) -> RunCompleted:
    """Complete the run; `last` is the answer that is decided together with the end and not folded yet."""
    return RunCompleted(
        stop_reason=stop_reason,
        iterations=facts.turns + (1 if last else 0),
        usage=add_usage(facts.usage, last.usage if last else NO_USAGE),
        cost_micros=facts.cost_micros + (last.cost_micros if last else 0),
        currency=(last.currency if last else "") or facts.currency,
    )


def run_failed(facts: RunFacts, code: str, error: str) -> RunFailed:
    return RunFailed(
        code=code,
        error=error[: limits.ERROR_TEXT_MAX],
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
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
