"""Exceeded and reached limits: sums over the budget state, for decisions and for notices.

Before: the budget state. After: decide.py calls `find_exceeded_limit`; whatever notifies users (runtime, command layer)
calls the rest.
"""

from collections.abc import Iterable, Iterator

from loomlog.schemas.generated.budget_events import BudgetRefused
from loomlog.schemas.generated.values import LimitNotice
from loomlog.schemas.records import Value, replace
from loomlog.services.core.calendar_month import month_of
from loomlog.services.core.spending_limits import OPERATOR
from loomlog.services.families.budget.limits import CALL_AMOUNT_MAX
from loomlog.services.families.budget.state import EMPTY, AccountUsage, BudgetState, Limit, limited, reserved_multiple

TOKENS, MICROS = "tokens", "micros"
UNITS = {TOKENS: "tokens", MICROS: "millionths of the currency"}
"""Names of the units in messages."""
SOFT, HARD = "soft", "hard"


class LimitExceeded(Value, frozen=True, kw_only=True):
    """A call does not fit under a hard limit. Amounts in units; `may_fit`: it would if no other call were under way."""

    scope: str
    scope_id: str
    unit: str
    used: int
    reserved: int
    limit: int
    may_fit: bool


def account_at(books: BudgetState, key: str, at_ms: int) -> AccountUsage:
    """Return the account at a time: at zero when its month has begun and nothing has been spent in it yet."""
    if month_of(at_ms) > books.month:
        return EMPTY
    return books.accounts.get(key, EMPTY)


def find_exceeded_limit(
    books: BudgetState, tenant: str, user_id: str, tokens: int, micros: int
) -> LimitExceeded | None:
    """Return the first hard limit, widest scope first, that forbids a call of this worst case; None when none does."""
    keys = limited(books, tenant, user_id)
    tokens, micros = reserved_amounts(books, keys, tokens, micros)
    for key in keys:
        exceeded = _refused(books.limits[key], books.accounts[key], tokens, micros)
        if exceeded is not None:
            return exceeded
    return None


def reserved_amounts(books: BudgetState, accounts: Iterable[str], tokens: int, micros: int) -> tuple[int, int]:
    """Return the tokens and millionths to reserve for a worst case: more after a provider reported more."""
    multiple = reserved_multiple(books, accounts)
    return min(tokens * multiple, CALL_AMOUNT_MAX), min(micros * multiple, CALL_AMOUNT_MAX)


def _refused(limit: Limit, account: AccountUsage, tokens: int, micros: int) -> LimitExceeded | None:
    if limit.hard_tokens is not None:
        # Without `strict` a call that starts while something is left may exceed the limit.
        needed = tokens if limit.strict else 1
        if account.used_tokens + account.reserved_tokens + needed > limit.hard_tokens:
            may_fit = account.used_tokens + needed <= limit.hard_tokens
            return _refused_by(
                limit, TOKENS, account.used_tokens, account.reserved_tokens, limit.hard_tokens, may_fit=may_fit
            )
    if limit.hard_micros is not None and account.used_micros + account.reserved_micros + micros > limit.hard_micros:
        may_fit = account.used_micros + micros <= limit.hard_micros
        return _refused_by(
            limit, MICROS, account.used_micros, account.reserved_micros, limit.hard_micros, may_fit=may_fit
        )
    return None


def _refused_by(limit: Limit, unit: str, used: int, reserved: int, most: int, *, may_fit: bool) -> LimitExceeded:
    return LimitExceeded(
        scope=limit.scope,
        scope_id=limit.scope_id,
        unit=unit,
        used=used,
        reserved=reserved,
        limit=most,
        may_fit=may_fit,
    )


def exhausted(books: BudgetState, tenant: str, user_id: str, at_ms: int) -> LimitNotice | None:
    """Return the hard limit that is used up, whatever is released by calls under way: no run may start."""
    return next(_reached(books, tenant, user_id, at_ms, HARD), None)


def passed_soft_limits(books: BudgetState, tenant: str, user_id: str, at_ms: int) -> tuple[LimitNotice, ...]:
    """Return the soft limits that are reached, widest scope first."""
    return tuple(_reached(books, tenant, user_id, at_ms, SOFT))


def _reached(books: BudgetState, tenant: str, user_id: str, at_ms: int, severity: str) -> Iterator[LimitNotice]:
    """Yield at most one notice per scope."""
    for key in limited(books, tenant, user_id):
        limit, account = books.limits[key], account_at(books, key, at_ms)
        tokens, micros = (
            (limit.soft_tokens, limit.soft_micros) if severity == SOFT else (limit.hard_tokens, limit.hard_micros)
        )
        if tokens is not None and account.used_tokens >= tokens:
            yield notice(limit.scope, limit.scope_id, severity, TOKENS, account.used_tokens, tokens)
        elif micros is not None and account.used_micros >= micros:
            yield notice(limit.scope, limit.scope_id, severity, MICROS, account.used_micros, micros)


def notice(scope: str, scope_id: str, severity: str, unit: str, used: int, limit: int) -> LimitNotice:
    """Return the notice of a reached limit for the runs it applies to; a tenant does not see what the whole
    installation spends.
    """
    is_ours = scope == OPERATOR
    figures = "" if is_ours else f": {used} of {limit} {UNITS[unit]}"
    return LimitNotice(
        scope=scope,
        scope_id=scope_id,
        severity=severity,
        unit=unit,
        used=0 if is_ours else used,
        limit=0 if is_ours else limit,
        message=f"the {severity} limit of {_limit_subject(scope, scope_id)} for this month is reached{figures}",
    )


def notice_of(refused: BudgetRefused, *, tokens: int, micros: int) -> LimitNotice:
    """Return the notice of the hard limit that forbids this call: it is reached, or the call is too large for it."""
    limit = f"the hard limit of {_limit_subject(refused.scope, refused.scope_id)} for this month"
    limit_notice = notice(refused.scope, refused.scope_id, HARD, refused.unit, refused.used, refused.limit)
    if refused.used >= refused.limit:
        return limit_notice
    worst, unit = micros if refused.unit == MICROS else tokens, UNITS[refused.unit]
    if refused.may_fit:
        message = f"what is left of {limit} is set aside for calls under way; try again when they have ended"
    elif refused.scope == OPERATOR:
        message = f"the call may use {worst} {unit}, more than is left of {limit}; a smaller max_tokens makes it less"
    else:
        left = f"{refused.limit - refused.used} of {refused.limit}"
        message = f"the call may use {worst} {unit}, and of {limit} {left} are left; a smaller max_tokens makes it less"
    return replace(limit_notice, message=message)


def _limit_subject(scope: str, scope_id: str) -> str:
    return "the installation" if scope == OPERATOR else f"the {scope} {scope_id}"
