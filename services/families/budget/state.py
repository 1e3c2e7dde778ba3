"""State of all budgets: the fold of the events of `budget:/installation`.

It is one aggregate, because one model call is charged to up to three accounts at once (operator, tenant, user) and each
of them must stay within its own limit: one order for all of them makes that a matter of sums.

    Limit        what an account may spend in a calendar month
    Account      its usage this month, and what is reserved for calls under way; only accounts with a limit
    Reservation  a call under way: its worst case is reserved until it is settled, released, or expires
    Closed       a call that has ended, remembered for a while, so that a repeated command changes nothing

A month ends with the first command of the next one: every account starts at zero, reservations of the month before stay
open but no longer count in any account.

The parts of which there are many are written as arrays, and a call that has ended for good only as its id, so that the
whole state fits one record (limits.py).

Before: the owner of the partition and every replica fold. After: decide.py and accounts.py read the state. Not chosen:
an aggregate for each account (three decisions for one call, each of which can be the one that is lost).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, assert_never

from msgspec import field

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
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.spending_limits import OPERATOR, TENANT, USER
from loomlog.services.families.budget.limits import REMEMBERED_MAX

VERSION = 1
"""Version of the fold."""
ACTUAL, LOST, EXPIRED, CORRECTED, UNRESERVED = "actual", "lost", "expired", "corrected", "unreserved"
"""Kinds of BudgetSettled."""


class Limit(Value, frozen=True, kw_only=True, array_like=True, tag=False):
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


class AccountUsage(Value, frozen=True, kw_only=True, array_like=True, tag=False):
    """Sums of the current month. `used` by calls that have ended, `reserved` for those under way."""

    used_tokens: int = 0
    used_micros: int = 0
    reserved_tokens: int = 0
    reserved_micros: int = 0
    multiple: int = 1
    """Worst cases are reserved this many times over: a provider reported that much more than the worst case of a call.
    """


class Reservation(Value, frozen=True, kw_only=True, array_like=True, tag=False):
    """The worst case of a call under way, reserved in `accounts` in `month`."""

    tenant: str
    user_id: str
    accounts: tuple[str, ...]
    month: str
    tokens: int
    micros: int
    multiple: int = 1
    """How many worst cases `tokens` and `micros` are."""


class ProvisionalUsage(Value, frozen=True, kw_only=True, array_like=True, tag=False):
    """What a call of unknown outcome counts as, until its result is reported."""

    accounts: tuple[str, ...]
    month: str
    tokens: int
    micros: int


Closed = Mapping[str, ProvisionalUsage | None]
"""Calls that have ended, by id; None: for good."""


class BudgetState(Value, frozen=True, kw_only=True):
    """All budgets. `recent` and `older` are two generations of calls that have ended."""

    month: str = ""
    """Current month, UTC, YYYY-MM; empty before the first command."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    accounts: Mapping[str, AccountUsage] = field(default_factory=dict)
    open: Mapping[str, Mapping[str, Reservation]] = field(default_factory=dict)
    """Reservations by call, by the minute in which they expire (`minute_key`): at most limits.RESERVATION_MS ahead, so
    the first one is found among few, and a decision copies those of one minute.
    """
    recent: Closed = field(default_factory=dict)
    older: Closed = field(default_factory=dict)

    def reservation(self, call_id: str) -> Reservation | None:
        """Return the reservation of a call under way."""
        for calls in self.open.values():
            if call_id in calls:
                return calls[call_id]
        return None

    @property
    def open_count(self) -> int:
        """Number of calls under way."""
        return sum(map(len, self.open.values()))

    def is_closed(self, call_id: str) -> bool:
        """Whether a call has ended, as long as it is remembered."""
        return call_id in self.recent or call_id in self.older

    def provisional(self, call_id: str) -> ProvisionalUsage | None:
        """Return what a call of unknown outcome counts as."""
        return self.recent[call_id] if call_id in self.recent else self.older.get(call_id)


EMPTY = AccountUsage()
MULTIPLE_MAX = 1_000
"""Most worst cases that one call reserves."""
MINUTE_MS = 60_000
Held = TypeVar("Held")


def minute_key(at_ms: int) -> str:
    """Return the key in BudgetState.open of the minute that begins at the time or after it; keys sort like times."""
    return f"{-(-at_ms // MINUTE_MS) * MINUTE_MS:016d}"


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
    """Return the state after an event decided at `at_ms`. Raises ValueError when it cannot follow."""
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
            return _remember_closed(_close(books, call_id, event), call_id, None)
        case BudgetRefused():
            return books
        case _:
            assert_never(event)


def _limit_set(books: BudgetState, event: LimitSet, at_ms: int) -> BudgetState:
    key = account_key(event.scope, event.tenant, event.scope_id)
    limit = copy_as(Limit, event, at_ms=at_ms)
    known = books.accounts.get(key)
    limits = {**books.limits, key: limit}
    if known is not None:
        return replace(books, limits=limits)
    # Calls under way that are reserved in another account count in this one from now on.
    opened = _map_reservations(
        books,
        lambda held: (
            replace(held, accounts=(*held.accounts, key)) if key in keys_of(held.tenant, held.user_id) else held
        ),
    )
    calls = [held for calls in opened.values() for held in calls.values()]
    under_way = [held for held in calls if key in held.accounts and held.month == books.month]
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

    def forget(closed: Closed) -> Closed:
        return {
            name: None if usage is None else replace(usage, accounts=elsewhere(usage.accounts))
            for name, usage in closed.items()
        }

    return replace(
        books,
        limits=_without(books.limits, key),
        accounts=_without(books.accounts, key),
        open=_map_reservations(books, lambda held: replace(held, accounts=elsewhere(held.accounts))),
        recent=forget(books.recent),
        older=forget(books.older),
    )


def _map_reservations(
    books: BudgetState, change: Callable[[Reservation], Reservation]
) -> dict[str, dict[str, Reservation]]:
    return {minute: {call_id: change(held) for call_id, held in calls.items()} for minute, calls in books.open.items()}


def _reserved(books: BudgetState, event: BudgetReserved) -> BudgetState:
    if books.reservation(event.id) is not None:
        raise ValueError(f"{event.id} is reserved twice")
    held = copy_as(Reservation, event, month=books.month, multiple=reserved_multiple(books, event.accounts))
    minute = minute_key(event.expires_at_ms)
    opened = {**books.open, minute: {**books.open.get(minute, {}), event.id: held}}
    return replace(_move_reserved(books, held, 1), open=opened)


def _settled(books: BudgetState, event: BudgetSettled) -> BudgetState:
    usage = copy_as(ProvisionalUsage, event)
    if event.kind == CORRECTED:
        before = books.provisional(event.id)
        if before is None:
            raise ValueError(f"{event.id} is corrected and did not count as lost")
        books = _add_usage(books, before, -1)
    elif event.kind != UNRESERVED:
        held = books.reservation(event.id)
        books = _close(books, event.id, event)
        assert held is not None
        books = _raise_multiple(books, held, usage)
    is_provisional = event.kind in (LOST, EXPIRED)
    return _remember_closed(_add_usage(books, usage, 1), event.id, usage if is_provisional else None)


def reserved_multiple(books: BudgetState, accounts: Iterable[str]) -> int:
    """Return how many times its worst case a call reserves in these accounts."""
    return max((books.accounts[key].multiple for key in accounts), default=1)


def _raise_multiple(books: BudgetState, held: Reservation, usage: ProvisionalUsage) -> BudgetState:
    """Raise the multiple of its accounts when a call used more than was reserved for it.

    Calls side by side would exceed a limit together otherwise, each by its own excess. It holds until the month ends.
    """
    if held.month != books.month or (usage.tokens <= held.tokens and usage.micros <= held.micros):
        return books
    excess = max(-(-usage.tokens // max(held.tokens, 1)), -(-usage.micros // max(held.micros, 1)))
    multiple = min(held.multiple * excess, MULTIPLE_MAX)
    accounts = dict(books.accounts)
    for key in held.accounts:
        accounts[key] = replace(accounts[key], multiple=max(accounts[key].multiple, multiple))
    return replace(books, accounts=accounts)


def _close(books: BudgetState, call_id: str, event: object) -> BudgetState:
    """Return the budgets without the reservation of a call."""
    minute = next((minute for minute, calls in books.open.items() if call_id in calls), None)
    if minute is None:
        raise ValueError(f"{type(event).__name__} of {call_id}, which is not reserved")
    held = books.open[minute][call_id]
    left = _without(books.open[minute], call_id)
    opened = {**books.open, minute: left} if left else _without(books.open, minute)
    return replace(_move_reserved(books, held, -1), open=opened)


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


def _add_usage(books: BudgetState, usage: ProvisionalUsage, sign: int) -> BudgetState:
    """Add what a call used to its accounts, or subtract it."""
    if usage.month != books.month or not usage.accounts:
        return books
    accounts = dict(books.accounts)
    for key in usage.accounts:
        account = accounts[key]
        accounts[key] = replace(
            account,
            used_tokens=account.used_tokens + sign * usage.tokens,
            used_micros=account.used_micros + sign * usage.micros,
        )
    return replace(books, accounts=accounts)


def _remember_closed(books: BudgetState, call_id: str, usage: ProvisionalUsage | None) -> BudgetState:
    recent, older = {**books.recent, call_id: usage}, books.older
    if len(recent) > REMEMBERED_MAX:
        recent, older = {}, recent
    return replace(books, recent=recent, older=older)


def _without(entries: Mapping[str, Held], key: str) -> dict[str, Held]:
    left = dict(entries)
    del left[key]
    return left
