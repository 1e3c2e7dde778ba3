"""State of all budgets: the fold of loom.budget.events.

It is one aggregate, because one model call is charged to up to three accounts at once (operator, tenant, user) and each
of them must stay within its own limit: one order for all of them makes that a matter of sums.

    Limit        what an account may spend in a calendar month
    Account      its usage this month, and what is reserved for calls under way; only accounts with a limit
    Reservation  a call under way: its worst case is reserved until it is settled, released, or expires
    Closed       a call that has ended, remembered for a while, so that a repeated command changes nothing

A month ends with the first command of the next one: every account starts at zero, reservations of the month before stay
open but no longer count in any account.

Before: loomlog.schemas.reader returns accepted events. After: decide reads the state,
services/families/budget/replica.py keeps a copy. Not chosen: an aggregate for each account (three decisions for one
call, each of which can be the one that is lost).
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar, assert_never

from msgspec import field

from loomlog.schemas.generated.budget_events import (
    BudgetMonthBegan,
    BudgetQuarantined,
    BudgetRefused,
    BudgetReleased,
    BudgetReserved,
    BudgetSettled,
    Event,
    LimitDeclined,
    LimitRemoved,
    LimitSet,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.families.budget.limits import REMEMBERED_MAX

REDUCER_VERSION = 3
"""Version of the fold. Raise it whenever the same events fold to another state; older snapshots are then ignored."""
OPERATOR, TENANT, USER = "operator", "tenant", "user"
SCOPES = (OPERATOR, TENANT, USER)
"""Scopes of an account, widest first: the order in which limits are checked."""
ACTUAL, LOST, EXPIRED, CORRECTED, UNRESERVED = "actual", "lost", "expired", "corrected", "unreserved"
"""Kinds of BudgetSettled."""


class IllegalBudgetEvent(Exception):
    """An event cannot follow: a bug of the fold or a damaged log."""


class Limit(Value, frozen=True, kw_only=True):
    """Spending limits of an account per month; None = without that limit. Micros are millionths of `currency`."""

    scope: str
    tenant: str
    scope_id: str
    soft_tokens: int | None = None
    hard_tokens: int | None = None
    soft_micros: int | None = None
    hard_micros: int | None = None
    strict: bool = False
    """hard_tokens is never exceeded either: a call starts only when its worst case fits. Money always works like that.
    """
    currency: str = ""
    by: str = ""
    at_ms: int = 0


class AccountUsage(Value, frozen=True, kw_only=True):
    """Sums of the current month. `used` by calls that have ended, `reserved` for those under way."""

    used_tokens: int = 0
    used_micros: int = 0
    reserved_tokens: int = 0
    reserved_micros: int = 0
    multiple: int = 1
    """Worst cases are reserved this many times over: a provider reported that much more than the worst case of a call.
    """


class Reservation(Value, frozen=True, kw_only=True):
    """The worst case of a call under way, reserved in `accounts` in `month`."""

    tenant: str
    user_id: str
    accounts: tuple[str, ...]
    month: str
    tokens: int
    micros: int
    expires_at_ms: int
    multiple: int = 1
    """How many worst cases `tokens` and `micros` are."""


class ClosedReservation(Value, frozen=True, kw_only=True):
    """A call that has ended. `provisional`: its reserved amount is counted because its outcome is unknown."""

    accounts: tuple[str, ...]
    month: str
    tokens: int
    micros: int
    provisional: bool = False


class BudgetState(Value, frozen=True, kw_only=True):
    """All budgets. `open` in the order of expiry; `recent` and `older` are two generations of closed reservations."""

    month: str = ""
    """Current month, UTC, YYYY-MM; empty before the first command."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    accounts: Mapping[str, AccountUsage] = field(default_factory=dict)
    open: Mapping[str, Reservation] = field(default_factory=dict)
    recent: Mapping[str, ClosedReservation] = field(default_factory=dict)
    older: Mapping[str, ClosedReservation] = field(default_factory=dict)

    def closed(self, call_id: str) -> ClosedReservation | None:
        """Return a call that has ended, as long as it is remembered."""
        return self.recent.get(call_id) or self.older.get(call_id)


EMPTY = AccountUsage()
MULTIPLE_MAX = 1_000
"""Most worst cases that one call reserves."""
Held = TypeVar("Held")


def account_key(scope: str, tenant: str, scope_id: str) -> str:
    """Return the key of an account. Ids contain no line ends (`account_error`)."""
    return f"{scope}\n{tenant}\n{scope_id}"


def keys_of(tenant: str, user_id: str) -> tuple[str, str, str]:
    """Return the accounts that a run of that user is charged to, if they have a limit; widest first."""
    return account_key(OPERATOR, "", ""), account_key(TENANT, tenant, tenant), account_key(USER, tenant, user_id)


def limited(books: BudgetState, tenant: str, user_id: str) -> tuple[str, ...]:
    """Return those of `keys_of` that have a limit."""
    limits = books.limits
    return tuple([key for key in keys_of(tenant, user_id) if key in limits]) if limits else ()


def evolve(books: BudgetState, event: Event, at_ms: int) -> BudgetState:
    """Return the state after an event decided at `at_ms`. Raises IllegalBudgetEvent when it cannot follow."""
    match event:
        case BudgetMonthBegan(month=month):
            return replace(books, month=month, accounts=dict.fromkeys(books.accounts, EMPTY))
        case LimitSet():
            return _limit_set(books, event, at_ms)
        case LimitRemoved():
            return _limit_removed(books, account_key(event.scope, event.tenant, event.scope_id))
        case BudgetReserved():
            return _reserved(books, event)
        case BudgetSettled():
            return _settled(books, event)
        case BudgetReleased(id=call_id):
            held = _open_reservation(books, call_id, event)
            nothing = ClosedReservation(accounts=(), month=held.month, tokens=0, micros=0)
            return _remember_closed(_move_reserved(books, held, -1), call_id, nothing)
        case BudgetRefused() | LimitDeclined() | BudgetQuarantined():
            return books
        case _:
            assert_never(event)


def _limit_set(books: BudgetState, event: LimitSet, at_ms: int) -> BudgetState:
    key = account_key(event.scope, event.tenant, event.scope_id)
    limit = Limit(
        scope=event.scope,
        tenant=event.tenant,
        scope_id=event.scope_id,
        soft_tokens=event.soft_tokens,
        hard_tokens=event.hard_tokens,
        soft_micros=event.soft_micros,
        hard_micros=event.hard_micros,
        strict=event.strict,
        currency=event.currency,
        by=event.by,
        at_ms=at_ms,
    )
    known = books.accounts.get(key)
    limits = {**books.limits, key: limit}
    if known is not None:
        return replace(books, limits=limits)
    # Calls under way that are reserved in another account count in this one from now on.
    opened = {
        call_id: replace(held, accounts=(*held.accounts, key)) if key in keys_of(held.tenant, held.user_id) else held
        for call_id, held in books.open.items()
    }
    under_way = [held for held in opened.values() if key in held.accounts and held.month == books.month]
    account = AccountUsage(
        used_tokens=event.used_tokens,
        used_micros=event.used_micros,
        reserved_tokens=sum(held.tokens for held in under_way),
        reserved_micros=sum(held.micros for held in under_way),
    )
    return replace(books, limits=limits, accounts={**books.accounts, key: account}, open=opened)


def _limit_removed(books: BudgetState, key: str) -> BudgetState:
    """Remove the account from everything that refers to it: a new one under this key starts without its history."""

    def elsewhere(accounts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in accounts if name != key)

    return replace(
        books,
        limits=_without(books.limits, key),
        accounts=_without(books.accounts, key),
        open={name: replace(held, accounts=elsewhere(held.accounts)) for name, held in books.open.items()},
        recent={name: replace(closed, accounts=elsewhere(closed.accounts)) for name, closed in books.recent.items()},
        older={name: replace(closed, accounts=elsewhere(closed.accounts)) for name, closed in books.older.items()},
    )


def _reserved(books: BudgetState, event: BudgetReserved) -> BudgetState:
    if event.id in books.open:
        raise IllegalBudgetEvent(f"{event.id} is reserved twice")
    held = Reservation(
        tenant=event.tenant,
        user_id=event.user_id,
        accounts=event.accounts,
        month=books.month,
        tokens=event.tokens,
        micros=event.micros,
        expires_at_ms=event.expires_at_ms,
        multiple=reserved_multiple(books, event.accounts),
    )
    return replace(_move_reserved(books, held, 1), open={**books.open, event.id: held})


def _settled(books: BudgetState, event: BudgetSettled) -> BudgetState:
    closed = ClosedReservation(
        accounts=event.accounts,
        month=event.month,
        tokens=event.tokens,
        micros=event.micros,
        provisional=event.kind in (LOST, EXPIRED),
    )
    if event.kind == UNRESERVED:
        return _remember_closed(_add_closed(books, closed, 1), event.id, closed)
    if event.kind == CORRECTED:
        before = books.closed(event.id)
        if before is None or not before.provisional:
            raise IllegalBudgetEvent(f"{event.id} is corrected and did not count as lost")
        return _remember_closed(_add_closed(_add_closed(books, before, -1), closed, 1), event.id, closed)
    held = _open_reservation(books, event.id, event)
    books = _raise_multiple(books, held, closed)
    return _remember_closed(_add_closed(_move_reserved(books, held, -1), closed, 1), event.id, closed)


def reserved_multiple(books: BudgetState, accounts: Iterable[str]) -> int:
    """Return how many times its worst case a call reserves in these accounts."""
    return max((books.accounts[key].multiple for key in accounts), default=1)


def _raise_multiple(books: BudgetState, held: Reservation, closed: ClosedReservation) -> BudgetState:
    """Raise the multiple of its accounts when a call used more than was reserved for it.

    Calls side by side would exceed a limit together otherwise, each by its own excess. It holds until the month ends.
    """
    if held.month != books.month or (closed.tokens <= held.tokens and closed.micros <= held.micros):
        return books
    excess = max(-(-closed.tokens // max(held.tokens, 1)), -(-closed.micros // max(held.micros, 1)))
    multiple = min(held.multiple * excess, MULTIPLE_MAX)
    accounts = dict(books.accounts)
    for key in held.accounts:
        accounts[key] = replace(accounts[key], multiple=max(accounts[key].multiple, multiple))
    return replace(books, accounts=accounts)


def _open_reservation(books: BudgetState, call_id: str, event: object) -> Reservation:
    held = books.open.get(call_id)
    if held is None:
        raise IllegalBudgetEvent(f"{type(event).__name__} of {call_id}, which is not reserved")
    return held


def _move_reserved(books: BudgetState, held: Reservation, sign: int) -> BudgetState:
    """Add a reservation to its accounts, or subtract it. One of an earlier month changes nothing."""
    if held.month != books.month or not held.accounts:
        return books
    accounts = dict(books.accounts)
    for key in held.accounts:
        account = accounts[key]
        accounts[key] = replace(
            account,
            reserved_tokens=account.reserved_tokens + sign * held.tokens,
            reserved_micros=account.reserved_micros + sign * held.micros,
        )
    return replace(books, accounts=accounts)


def _add_closed(books: BudgetState, closed: ClosedReservation, sign: int) -> BudgetState:
    """Add a closed call to its accounts, or subtract it."""
    if closed.month != books.month or not closed.accounts:
        return books
    accounts = dict(books.accounts)
    for key in closed.accounts:
        account = accounts[key]
        accounts[key] = replace(
            account,
            used_tokens=account.used_tokens + sign * closed.tokens,
            used_micros=account.used_micros + sign * closed.micros,
        )
    return replace(books, accounts=accounts)


def _remember_closed(books: BudgetState, call_id: str, closed: ClosedReservation) -> BudgetState:
    opened = _without(books.open, call_id) if call_id in books.open else books.open
    recent, older = {**books.recent, call_id: closed}, books.older
    if len(recent) > REMEMBERED_MAX:
        recent, older = {}, recent
    return replace(books, open=opened, recent=recent, older=older)


def _without(entries: Mapping[str, Held], key: str) -> dict[str, Held]:
    return {name: value for name, value in entries.items() if name != key}
