"""Records of the namespace loom.budget.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.records import Record


class BudgetMonthBegan(Record, frozen=True, kw_only=True):
    """A calendar month begins: every account is at zero, the month before is closed."""

    SCHEMA: ClassVar[str] = "loom.budget.events.BudgetMonthBegan"

    month: str
    """UTC, YYYY-MM."""


class BudgetRefused(Record, frozen=True, kw_only=True):
    """A model call may not be made, and which limit says so."""

    SCHEMA: ClassVar[str] = "loom.budget.events.BudgetRefused"

    id: str
    """run:turn.attempt."""
    tenant: str
    """Of the run."""
    code: str
    """Reason code: over_limit, late, closed or too_many_open."""
    scope: str = ''
    """Of the limit: operator, tenant or user; empty when it is no limit."""
    scope_id: str = ''
    """The tenant or the user."""
    unit: str = ''
    """tokens or micros."""
    used: int = 0
    """Used this month, in units."""
    reserved: int = 0
    """Set aside for calls under way, in units."""
    limit: int = 0
    """The hard limit, in units."""
    may_fit: bool = False
    """It would fit if no other call were under way: it can be asked for again."""


class BudgetReleased(Record, frozen=True, kw_only=True):
    """What was set aside for a call is free again; nothing is counted."""

    SCHEMA: ClassVar[str] = "loom.budget.events.BudgetReleased"

    id: str
    """run:turn.attempt."""


class BudgetReserved(Record, frozen=True, kw_only=True):
    """A model call may be made: its worst case is set aside in every account named."""

    SCHEMA: ClassVar[str] = "loom.budget.events.BudgetReserved"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "id", "tenant", "user_id", "accounts", "tokens", "micros", "expires_at_ms",
    )

    id: str
    """run:turn.attempt."""
    tenant: str
    """Of the run."""
    user_id: str
    """Of the run."""
    tokens: int
    """Set aside."""
    micros: int
    """Set aside, in millionths of the currency."""
    expires_at_ms: int
    """When it counts as lost if it is not settled, UTC milliseconds."""
    accounts: tuple[str, ...] = ()
    """Keys of the accounts that have a limit for it."""


class BudgetSettled(Record, frozen=True, kw_only=True):
    """What a call has used is counted."""

    SCHEMA: ClassVar[str] = "loom.budget.events.BudgetSettled"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "id", "kind", "accounts", "tokens", "micros", "month",
    )

    id: str
    """run:turn.attempt."""
    kind: str
    """actual, lost (counts as reserved), expired (the same, not settled in time), corrected (a lost one had a
    result) or unreserved.
    """
    tokens: int
    """Counted."""
    micros: int
    """Counted, in millionths of the currency."""
    accounts: tuple[str, ...] = ()
    """Keys of the accounts it counts in."""
    month: str = ''
    """The month it belongs to, UTC, YYYY-MM; it counts only while that is the current one."""


class LimitRemoved(Record, frozen=True, kw_only=True):
    """An account has no limits any more and is not counted."""

    SCHEMA: ClassVar[str] = "loom.budget.events.LimitRemoved"

    tenant: str
    """Tenant of the account; empty for operator."""
    scope: str
    """operator, tenant or user."""
    scope_id: str
    """The tenant or the user; empty for operator."""
    by: str = ''
    """Who removed it."""


class LimitSet(Record, frozen=True, kw_only=True):
    """An account has these limits from now on, and no others."""

    SCHEMA: ClassVar[str] = "loom.budget.events.LimitSet"

    tenant: str
    """Tenant of the account; empty for operator."""
    scope: str
    """operator, tenant or user."""
    scope_id: str
    """The tenant or the user; empty for operator."""
    soft_tokens: int | None = None
    """Tokens of a month after which it is told; null = no such limit."""
    hard_tokens: int | None = None
    """Tokens of a month after which no call begins; null = no such limit."""
    soft_micros: int | None = None
    """The same in millionths of the currency."""
    hard_micros: int | None = None
    """Money of a month that is never exceeded, in millionths of the currency; null = no such limit."""
    strict: bool = False
    """Also hard_tokens is never exceeded: a call begins only when its worst case fits."""
    currency: str = ''
    """Of the micros; empty when nothing is priced."""
    used_tokens: int = 0
    """What was used this month before there was a limit; counts for a new account only."""
    used_micros: int = 0
    """The same in millionths of the currency."""
    by: str = ''
    """Who set it."""


RECORDS = (
    BudgetMonthBegan,
    BudgetRefused,
    BudgetReleased,
    BudgetReserved,
    BudgetSettled,
    LimitRemoved,
    LimitSet,
)
Event = BudgetMonthBegan | BudgetRefused | BudgetReleased | BudgetReserved | BudgetSettled | LimitRemoved | LimitSet
