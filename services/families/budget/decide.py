"""Decisions of the budget family: a command returns events. Empty = nothing to do, which makes redelivery safe.

    reserve   before a model call, its worst case in every account that has a limit, or the limit that forbids it
    settle    after it, the actual usage; for a lost call the reserved amount, until its result is reported
    release   the call was not made, or cost nothing

A hard limit in money is never exceeded: used, reserved and the worst case together stay below it. A hard limit in
tokens only forbids a call that would start when nothing is left, as clients of the reference expect, so the last call
may exceed it; with `strict` it is like money.

Every decision first closes what has expired: a month, and reservations that were not settled.

Before: services/stream passes a command with the budget state. After: the events are appended and every replica reads
them.
"""

from itertools import islice, takewhile
from typing import assert_never

from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.schemas.generated.budget_events import (
    BudgetMonthBegan,
    BudgetRefused,
    BudgetReleased,
    BudgetReserved,
    BudgetSettled,
    Event,
    LimitDeclined,
    LimitRemoved,
    LimitSet,
)
from loomlog.services.families.budget import limits
from loomlog.services.families.budget.amounts import LimitExceeded, find_exceeded_limit, reserved_amounts
from loomlog.services.families.budget.calendar_month import month_of
from loomlog.services.families.budget.commands import (
    BudgetCommandInput,
    BudgetRequest,
    BudgetTimerFired,
    RecoverBudgets,
)
from loomlog.services.families.budget.state import (
    ACTUAL,
    CORRECTED,
    EXPIRED,
    LOST,
    OPERATOR,
    SCOPES,
    TENANT,
    UNRESERVED,
    BudgetState,
    account_key,
    evolve,
    limited,
)

MINUTE_MS = 60_000


def next_timer_at(books: BudgetState) -> int:
    """Return when the first reservation expires, in UTC milliseconds rounded up to whole minutes; 0 = never."""
    first = next(iter(books.open.values()), None)
    return 0 if first is None else -(-first.expires_at_ms // MINUTE_MS) * MINUTE_MS


def decide(books: BudgetState, order: BudgetCommandInput) -> list[Event]:
    """Return the events that follow; none when the command no longer applies (repeated, forgotten)."""
    if isinstance(order, RecoverBudgets):
        return []
    if isinstance(order, BudgetTimerFired):
        return _expire(books, order.at_ms)
    events = _expire(books, order.at_ms)
    for event in events:
        books = evolve(books, event, order.at_ms)
    return [*events, *_decide_request(books, order)]


def _expire(books: BudgetState, at_ms: int) -> list[Event]:
    events: list[Event] = []
    month = month_of(at_ms)
    if month > books.month:  # the clock of another owner may be behind: a month that has begun continues
        events.append(BudgetMonthBegan(month=month))
    due = takewhile(lambda item: item[1].expires_at_ms <= at_ms, books.open.items())
    for call_id, held in islice(due, limits.EXPIRED_PER_DECISION):
        events.append(
            BudgetSettled(
                id=call_id,
                kind=EXPIRED,
                accounts=held.accounts,
                tokens=held.tokens,
                micros=held.micros,
                month=held.month,
            )
        )
    return events


def _decide_request(books: BudgetState, order: BudgetRequest) -> list[Event]:
    match order.command:
        case SetLimit() as command:
            return [_set(books, command)]
        case RemoveLimit() as command:
            key = account_key(command.scope, command.tenant, command.scope_id)
            if key not in books.limits:
                return []
            return [
                LimitRemoved(
                    tenant=command.tenant, scope=command.scope, scope_id=command.scope_id, by=command.envelope.subject
                )
            ]
        case ReserveBudget() as command:
            return _reserve(books, command, order.at_ms)
        case SettleBudget() as command:
            return _settle(books, command)
        case ReleaseBudget(id=call_id):
            return _release(books, call_id)
        case _:
            assert_never(order.command)


def _set(books: BudgetState, command: SetLimit) -> Event:
    wrong = account_error(command.scope, command.tenant, command.scope_id) or _amounts_error(command)
    if wrong:
        return LimitDeclined(code="bad_request", message=wrong)
    key = account_key(command.scope, command.tenant, command.scope_id)
    if key not in books.limits and len(books.limits) >= limits.LIMITS_MAX:
        return LimitDeclined(
            code="too_many_limits",
            message=f"{limits.LIMITS_MAX} accounts have limits, which is the most there can be; remove one first",
        )
    return LimitSet(
        tenant=command.tenant,
        scope=command.scope,
        scope_id=command.scope_id,
        soft_tokens=command.soft_tokens,
        hard_tokens=command.hard_tokens,
        soft_micros=command.soft_micros,
        hard_micros=command.hard_micros,
        strict=command.strict,
        currency=command.currency,
        used_tokens=command.used_tokens,
        used_micros=command.used_micros,
        by=command.envelope.subject,
    )


def account_error(scope: str, tenant: str, scope_id: str) -> str:
    """Return what is wrong with the name of an account; empty if nothing is."""
    if scope not in SCOPES:
        return f"scope is {scope[:40]!r}: expected operator, tenant or user"
    if any(not text.isprintable() for text in (tenant, scope_id)):
        return "tenant_id and scope_id are printable characters only"
    if scope == OPERATOR:
        return "" if not tenant and not scope_id else "the scope operator has neither tenant_id nor scope_id"
    if not tenant:
        return f"tenant_id is required for the scope {scope}"
    if scope == TENANT:
        return "" if scope_id == tenant else "scope_id of the scope tenant is that tenant"
    return "" if scope_id else "scope_id is required for the scope user: the user"


def _amounts_error(command: SetLimit) -> str:
    values = (command.soft_tokens, command.hard_tokens, command.soft_micros, command.hard_micros)
    amounts = [amount for amount in values if amount is not None]
    if not amounts:
        return "a limit needs soft_limit, hard_limit, or one of them in money"
    if any(not 0 <= amount <= limits.AMOUNT_MAX for amount in (*amounts, command.used_tokens, command.used_micros)):
        return f"limits are whole numbers of 0 to {limits.AMOUNT_MAX}"
    return ""


def _reserve(books: BudgetState, command: ReserveBudget, at_ms: int) -> list[Event]:
    if command.id in books.open:
        return []  # a repeated request finds the reservation in the budget state
    tenant, user = command.envelope.tenant, command.user_id
    refused: LimitExceeded | None = None
    code = ""
    if books.closed(command.id) is not None:
        code = "closed"
    elif at_ms > command.deadline_ms:
        code = "late"
    elif len(books.open) >= limits.OPEN_MAX:
        code = "too_many_open"
    else:
        refused = find_exceeded_limit(books, tenant, user, command.tokens, command.micros)
        code = "over_limit" if refused is not None else ""
    if refused is not None:
        return [
            BudgetRefused(
                id=command.id,
                tenant=tenant,
                code=code,
                scope=refused.scope,
                scope_id=refused.scope_id,
                unit=refused.unit,
                used=refused.used,
                reserved=refused.reserved,
                limit=refused.limit,
                may_fit=refused.may_fit,
            )
        ]
    if code:
        return [BudgetRefused(id=command.id, tenant=tenant, code=code, may_fit=code == "too_many_open")]
    accounts = limited(books, tenant, user)
    tokens, micros = reserved_amounts(books, accounts, command.tokens, command.micros)
    return [
        BudgetReserved(
            id=command.id,
            tenant=tenant,
            user_id=user,
            accounts=accounts,
            tokens=tokens,
            micros=micros,
            expires_at_ms=at_ms + limits.RESERVATION_MS,
        )
    ]


def _release(books: BudgetState, call_id: str) -> list[Event]:
    if call_id in books.open:
        return [BudgetReleased(id=call_id)]
    closed = books.closed(call_id)
    if closed is not None and closed.provisional:
        return [_settled(call_id, CORRECTED, closed.accounts, 0, 0, closed.month)]
    return []


def _settle(books: BudgetState, command: SettleBudget) -> list[Event]:
    held, closed = books.open.get(command.id), books.closed(command.id)
    tokens, micros = command.tokens, command.micros
    if held is not None and command.lost:
        return [_settled(command.id, LOST, held.accounts, held.tokens, held.micros, held.month)]
    if held is not None:
        return [_settled(command.id, ACTUAL, held.accounts, tokens, micros, held.month)]
    if command.lost:
        return []
    if closed is not None:
        # A lost or expired call is corrected once; any other is already settled.
        is_news = closed.provisional
        return [_settled(command.id, CORRECTED, closed.accounts, tokens, micros, closed.month)] if is_news else []
    accounts = limited(books, command.envelope.tenant, command.user_id)
    if command.reserved or not accounts:
        return []  # either its reservation was counted and is forgotten, or no account has a limit
    return [_settled(command.id, UNRESERVED, accounts, tokens, micros, books.month)]


def _settled(call_id: str, kind: str, accounts: tuple[str, ...], tokens: int, micros: int, month: str) -> BudgetSettled:
    return BudgetSettled(id=call_id, kind=kind, accounts=accounts, tokens=tokens, micros=micros, month=month)
