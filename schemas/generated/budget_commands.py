"""Records of the namespace loom.budget.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class ReleaseBudget(Record, frozen=True, kw_only=True):
    """A reserved call was not made, or cost nothing."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.ReleaseBudget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    id: str
    """As reserved."""


class RemoveLimit(Record, frozen=True, kw_only=True):
    """Take the limits of an account away."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.RemoveLimit"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    tenant: str
    """Tenant of the account; empty for operator."""
    scope: str
    """operator, tenant or user."""
    scope_id: str
    """The tenant or the user; empty for operator."""


class ReserveBudget(Record, frozen=True, kw_only=True):
    """Set the worst case of a model call aside before it is made."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.ReserveBudget"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "id", "tenant", "user_id", "tokens", "micros", "deadline_ms",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    id: str
    """Of the call: run:turn.attempt. The same id again reserves nothing more."""
    tenant: str
    """The tenant of the run; that of the envelope is empty, as for all commands to budgets."""
    tokens: int
    """The most tokens of all kinds the call can use."""
    deadline_ms: int
    """The sender waits until then, UTC milliseconds; later it is refused."""
    user_id: str = ''
    """The user of the run."""
    micros: int = 0
    """The most it can cost in millionths of the currency; 0 for a model without a price."""


class SetLimit(Record, frozen=True, kw_only=True):
    """Limit what an account may spend in a month; what is said replaces what was."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.SetLimit"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
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


class SettleBudget(Record, frozen=True, kw_only=True):
    """Say what a call has used; what was reserved beyond that is free again."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.SettleBudget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    id: str
    """As reserved."""
    tenant: str
    """The tenant of the run; that of the envelope is empty, as for all commands to budgets."""
    user_id: str = ''
    """The user of the run."""
    tokens: int = 0
    """Tokens of all kinds; not looked at when the call is lost."""
    micros: int = 0
    """Cost in millionths of the currency; not looked at when the call is lost."""
    lost: bool = False
    """The outcome of the call is unknown: it counts as what was reserved, until its result is reported."""
    reserved: bool = True
    """It was reserved; false for a call that was under way when its first limit was set."""


RECORDS = (
    ReleaseBudget,
    RemoveLimit,
    ReserveBudget,
    SetLimit,
    SettleBudget,
)
Command = ReleaseBudget | RemoveLimit | ReserveBudget | SetLimit | SettleBudget
