"""What a run does about limits on spending: it tells those it meets, and ends at one that forbids its next call.

The books are kept elsewhere (services/core/budget); a run only knows what its model calls bring home: notices of soft
limits with an answer, or that no call may be made. Each scope and severity is told once, however often it is met.

Before: services/core/run/decide.py with a ModelAnswered or an BudgetExceeded. After: the frame `limit`.
"""

from collections.abc import Iterable

from loomlog.schemas.generated.run_events import Event, LimitReached, ModelCallFailed, ModelReplied, RunFailed
from loomlog.schemas.generated.values import LimitNotice
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import BudgetExceeded, CommandRefusal
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, State

OVER_LIMIT = "token_limit_exceeded"
"""Code of a run that is refused, or ended, by a limit on spending (also one in money: clients know this code)."""


def notice_key(notice: LimitNotice) -> str:
    return f"{notice.scope}/{notice.severity}"


def new_limits(facts: RunFacts, notices: Iterable[LimitNotice]) -> list[LimitReached]:
    """The limits that were not told in this run yet."""
    found = {notice_key(notice): notice for notice in reversed(tuple(notices))}
    return [LimitReached(notice=notice) for key, notice in found.items() if key not in facts.reported_limits]


def with_notices(state: State, notices: tuple[LimitNotice, ...], events: list[Event]) -> list[Event]:
    """A decision about an answer, with the limits it brought home told right after it."""
    if not notices or not events or not isinstance(state, AwaitingModel):
        return events
    assert isinstance(events[0], ModelReplied), "an answer is the first that is decided about it"
    return [events[0], *new_limits(state.facts, notices), *events[1:]]


def handle_budget_exceeded(state: State, result: BudgetExceeded) -> list[Event]:
    """No call may be made: the run is over."""
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (result.turn, result.attempt):
        return []
    facts = state.facts
    return [
        ModelCallFailed(
            turn=result.turn,
            attempt=result.attempt,
            kind="refused",
            message=result.notice.message[: limits.ERROR_TEXT_MAX],
            provider=state.provider,
            model=state.model,
        ),
        *new_limits(facts, (result.notice,)),
        RunFailed(
            code=OVER_LIMIT,
            error=f"{OVER_LIMIT}: {result.notice.message}"[: limits.ERROR_TEXT_MAX],
            iterations=facts.turns,
            usage=facts.usage,
            cost_micros=facts.cost_micros,
            currency=facts.currency,
        ),
    ]


def limit_refusal(notice: LimitNotice) -> CommandRefusal:
    """A run that may not begin."""
    return CommandRefusal(code=OVER_LIMIT, message=f"{OVER_LIMIT}: {notice.message}", limit=notice)
