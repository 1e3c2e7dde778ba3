"""Reaction of a run to budget limits: it reports those it reaches, and ends at one that forbids its next call.

Spending is counted elsewhere (services/families/budget); a run only knows the results of its model calls: notices of
soft limits with an answer, or that no call may be made. Each scope and severity is reported once, however often it is
reached.

Before: services/core/run/decide.py with a ModelAnswered or a BudgetExceeded. After: the frame `limit`.
"""

from collections.abc import Iterable

from loomlog.schemas.generated.run_events import Event, LimitReached, ModelCallFailed, ModelReplied, RunFailed
from loomlog.schemas.generated.values import LimitNotice
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import BudgetExceeded, CommandRefusal
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, State

OVER_LIMIT = "token_limit_exceeded"
"""Code of a run that is refused or ended by a budget limit (also one in money: clients know this code)."""


def notice_key(notice: LimitNotice) -> str:
    return f"{notice.scope}/{notice.severity}"


def new_limits(facts: RunFacts, notices: Iterable[LimitNotice]) -> list[LimitReached]:
    """Return an event for each limit that was not reported in this run yet."""
    by_key = {notice_key(notice): notice for notice in reversed(tuple(notices))}
    return [LimitReached(notice=notice) for key, notice in by_key.items() if key not in facts.reported_limits]


def with_notices(state: State, notices: tuple[LimitNotice, ...], events: list[Event]) -> list[Event]:
    """Return the events of a decision about an answer, with the limits that came with it reported right after it."""
    if not notices or not events or not isinstance(state, AwaitingModel):
        return events
    assert isinstance(events[0], ModelReplied), "an answer is the first that is decided about it"
    return [events[0], *new_limits(state.facts, notices), *events[1:]]


def handle_budget_exceeded(state: State, result: BudgetExceeded) -> list[Event]:
    """End the run: no further call may be made."""
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
    """Refuse to start a run over this limit."""
    return CommandRefusal(code=OVER_LIMIT, message=f"{OVER_LIMIT}: {notice.message}", limit=notice)
