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

from itertools import islice

from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.schemas.generated.budget_events import (
    BudgetMonthBegan,
    BudgetRefused,
    BudgetReleased,
    BudgetReserved,
    BudgetSettled,
    Event,
    LimitRemoved,
    LimitSet,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import copy_as
from loomlog.services.core.calendar_month import month_of
from loomlog.services.core.families import At, TimerFired
from loomlog.services.core.spending_limits import AMOUNT_MAX, ID_MAX, account_error
from loomlog.services.families.budget import limits
from loomlog.services.families.budget.amounts import LimitExceeded, find_exceeded_limit, reserved_amounts
from loomlog.services.families.budget.state import (
    ACTUAL,
    CORRECTED,
    EXPIRED,
    LOST,
    UNRESERVED,
    BudgetState,
    account_key,
    evolve,
    limited,
    minute_key,
)

Command = SetLimit | RemoveLimit | ReserveBudget | SettleBudget | ReleaseBudget


def next_timer_ms(books: BudgetState) -> int:
    """Return when the first reservation expires, UTC milliseconds; 0: never."""
    return int(min(books.open, default="0"))


def decide(books: BudgetState, command: Command | TimerFired, at: At) -> list[Event | CommandRefused]:
    """Return the events that follow; none when the command no longer applies (repeated, forgotten)."""
    events: list[Event | CommandRefused] = []
    for event in _expire(books, at.at_ms):
        books = evolve(books, event, at.at_ms)
        events.append(event)
    if isinstance(command, TimerFired):
        return events
    error = _command_error(command)
    decided: list[Event | CommandRefused] = [_refuse(error)] if error else _decide_command(books, command, at)
    if decided and isinstance(decided[-1], CommandRefused):
        return decided  # a refused command changes nothing: what has expired is closed by the next one
    return [*events, *decided]


def _expire(books: BudgetState, at_ms: int) -> list[Event]:
    events: list[Event] = []
    month = month_of(at_ms)
    if month > books.month:  # the clock of another owner may be behind: a month that has begun continues
        events.append(BudgetMonthBegan(month=month))
    # A minute that has begun is not over: the key of this time is later than that of every minute that is.
    now = minute_key(at_ms + 1)
    due = ((minute, call_id) for minute in sorted(books.open) if minute < now for call_id in sorted(books.open[minute]))
    for minute, call_id in islice(due, limits.EXPIRED_PER_DECISION):
        held = books.open[minute][call_id]
        events.append(_settled(call_id, EXPIRED, held.accounts, held.tokens, held.micros, held.month))
    return events


def _command_error(command: Command) -> str:
    """Return why a command makes no sense for any budgets; empty if it does."""
    if isinstance(command, ReserveBudget | SettleBudget):
        amounts = (command.tokens, command.micros)
        if any(not 0 <= amount <= limits.CALL_AMOUNT_MAX for amount in amounts):
            return f"{amounts} tokens and micros: expected 0 to {limits.CALL_AMOUNT_MAX} of each"
        too_long = [name for name in (command.id, command.user_id, command.tenant) if len(name) > ID_MAX]
        if too_long:
            return f"{too_long[0][:40]!r}... has more than {ID_MAX} characters"
    return ""


def _refuse(message: str, code: str = "bad_request") -> CommandRefused:
    return CommandRefused(code=code, message=message)


def _decide_command(books: BudgetState, command: Command, at: At) -> list[Event | CommandRefused]:
    match command:
        case SetLimit():
            return [_set(books, command)]
        case RemoveLimit():
            key = account_key(command.scope, command.tenant, command.scope_id)
            if key not in books.limits:
                return []
            return [copy_as(LimitRemoved, command, by=command.envelope.subject)]
        case ReserveBudget():
            return [*_reserve(books, command, at.at_ms)]
        case SettleBudget():
            return [*_settle(books, command)]
        case ReleaseBudget(id=call_id):
            return [*_release(books, call_id)]


def _set(books: BudgetState, command: SetLimit) -> Event | CommandRefused:
    wrong = account_error(command.scope, command.tenant, command.scope_id) or _amounts_error(command)
    if wrong:
        return _refuse(wrong)
    key = account_key(command.scope, command.tenant, command.scope_id)
    if key not in books.limits and len(books.limits) >= limits.LIMITS_MAX:
        message = f"{limits.LIMITS_MAX} accounts have limits, which is the most there can be; remove one first"
        return _refuse(message, "too_many_limits")
    return copy_as(LimitSet, command, by=command.envelope.subject)


def _amounts_error(command: SetLimit) -> str:
    values = (command.soft_tokens, command.hard_tokens, command.soft_micros, command.hard_micros)
    amounts = [amount for amount in values if amount is not None]
    if not amounts:
        return "a limit needs soft_limit, hard_limit, or one of them in money"
    if any(not 0 <= amount <= AMOUNT_MAX for amount in (*amounts, command.used_tokens, command.used_micros)):
        return f"limits are whole numbers of 0 to {AMOUNT_MAX}"
    return ""


def _reserve(books: BudgetState, command: ReserveBudget, at_ms: int) -> list[Event]:
    if books.reservation(command.id) is not None:
        return []  # a repeated request finds the reservation in the budget state
    tenant, user = command.tenant, command.user_id
    refused: LimitExceeded | None = None
    code = ""
    if books.is_closed(command.id):
        code = "closed"
    elif at_ms > command.deadline_ms:
        code = "late"
    elif books.open_count >= limits.OPEN_MAX:
        code = "too_many_open"
    else:
        refused = find_exceeded_limit(books, tenant, user, command.tokens, command.micros)
        code = "over_limit" if refused is not None else ""
    if refused is not None:
        return [copy_as(BudgetRefused, refused, id=command.id, tenant=tenant, code=code)]
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
    if books.reservation(call_id) is not None:
        return [BudgetReleased(id=call_id)]
    usage = books.provisional(call_id)
    return [] if usage is None else [_settled(call_id, CORRECTED, usage.accounts, 0, 0, usage.month)]


def _settle(books: BudgetState, command: SettleBudget) -> list[Event]:
    held, usage = books.reservation(command.id), books.provisional(command.id)
    tokens, micros = command.tokens, command.micros
    if held is not None and command.lost:
        return [_settled(command.id, LOST, held.accounts, held.tokens, held.micros, held.month)]
    if held is not None:
        return [_settled(command.id, ACTUAL, held.accounts, tokens, micros, held.month)]
    if command.lost:
        return []
    if usage is not None:  # a lost or expired call is corrected once
        return [_settled(command.id, CORRECTED, usage.accounts, tokens, micros, usage.month)]
    accounts = limited(books, command.tenant, command.user_id)
    if books.is_closed(command.id) or command.reserved or not accounts:
        return []  # it is counted: known to be settled, or reserved and forgotten; or no account has a limit
    return [_settled(command.id, UNRESERVED, accounts, tokens, micros, books.month)]


def _settled(call_id: str, kind: str, accounts: tuple[str, ...], tokens: int, micros: int, month: str) -> BudgetSettled:
    return BudgetSettled(id=call_id, kind=kind, accounts=accounts, tokens=tokens, micros=micros, month=month)
