"""Records of the namespace loom.budget.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class ReleaseBudget(Record, frozen=True, kw_only=True):
    """A reserved call was not made, or cost nothing."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.ReleaseBudget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    id: str
    """As reserved."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "id": self.id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            id=value["id"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "tenant": self.tenant,
            "scope": self.scope,
            "scope_id": self.scope_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            tenant=value["tenant"],
            scope=value["scope"],
            scope_id=value["scope_id"],
        )


class ReserveBudget(Record, frozen=True, kw_only=True):
    """Set the worst case of a model call aside before it is made."""

    SCHEMA: ClassVar[str] = "loom.budget.commands.ReserveBudget"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "id": self.id,
            "tenant": self.tenant,
            "user_id": self.user_id,
            "tokens": self.tokens,
            "micros": self.micros,
            "deadline_ms": self.deadline_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            id=value["id"],
            tenant=value["tenant"],
            user_id=value["user_id"],
            tokens=value["tokens"],
            micros=value["micros"],
            deadline_ms=value["deadline_ms"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "tenant": self.tenant,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "soft_tokens": self.soft_tokens,
            "hard_tokens": self.hard_tokens,
            "soft_micros": self.soft_micros,
            "hard_micros": self.hard_micros,
            "strict": self.strict,
            "currency": self.currency,
            "used_tokens": self.used_tokens,
            "used_micros": self.used_micros,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            tenant=value["tenant"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            soft_tokens=value["soft_tokens"],
            hard_tokens=value["hard_tokens"],
            soft_micros=value["soft_micros"],
            hard_micros=value["hard_micros"],
            strict=value["strict"],
            currency=value["currency"],
            used_tokens=value["used_tokens"],
            used_micros=value["used_micros"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "id": self.id,
            "tenant": self.tenant,
            "user_id": self.user_id,
            "tokens": self.tokens,
            "micros": self.micros,
            "lost": self.lost,
            "reserved": self.reserved,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            id=value["id"],
            tenant=value["tenant"],
            user_id=value["user_id"],
            tokens=value["tokens"],
            micros=value["micros"],
            lost=value["lost"],
            reserved=value["reserved"],
        )


RECORDS = (
    ReleaseBudget,
    RemoveLimit,
    ReserveBudget,
    SetLimit,
    SettleBudget,
)
Command = ReleaseBudget | RemoveLimit | ReserveBudget | SetLimit | SettleBudget
