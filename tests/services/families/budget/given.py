"""Books made by commands, the way an owner makes them."""

from typing import Any

from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import At
from loomlog.services.families.budget.decide import decide
from loomlog.services.families.budget.state import BudgetState, account_key, evolve

NOVEMBER = 1_795_392_000_000
"""2026-11-23 00:00 UTC."""
DECEMBER = 1_796_083_200_000 + 3_600_000
"""2026-12-01 01:00 UTC."""
ALICE = account_key("user", "acme", "alice")
ACME = account_key("tenant", "acme", "acme")
EVERYBODY = account_key("operator", "", "")


def sent() -> CommandEnvelope:
    return CommandEnvelope(command_id="c_1", tenant="", subject="root", issued_at_ms=1)


def user_limit(user: str = "alice", **amounts: Any) -> SetLimit:
    return SetLimit(envelope=sent(), tenant="acme", scope="user", scope_id=user, **amounts)


def tenant_limit(**amounts: Any) -> SetLimit:
    return SetLimit(envelope=sent(), tenant="acme", scope="tenant", scope_id="acme", **amounts)


def operator_limit(**amounts: Any) -> SetLimit:
    return SetLimit(envelope=sent(), tenant="", scope="operator", scope_id="", **amounts)


def no_limit(user: str = "alice") -> RemoveLimit:
    return RemoveLimit(envelope=sent(), tenant="acme", scope="user", scope_id=user)


def reserve(call: str, tokens: int = 0, micros: int = 0, *, user: str = "alice", until: int = 1 << 50) -> ReserveBudget:
    return ReserveBudget(
        envelope=sent(), id=call, tenant="acme", user_id=user, tokens=tokens, micros=micros, deadline_ms=until
    )


def settle(call: str, tokens: int = 0, micros: int = 0, *, user: str = "alice", reserved: bool = True) -> SettleBudget:
    return SettleBudget(
        envelope=sent(), id=call, tenant="acme", user_id=user, tokens=tokens, micros=micros, reserved=reserved
    )


def lost(call: str, *, user: str = "alice") -> SettleBudget:
    return SettleBudget(envelope=sent(), id=call, tenant="acme", user_id=user, lost=True)


def release(call: str) -> ReleaseBudget:
    return ReleaseBudget(envelope=sent(), id=call)


class Ledger:
    """Books that take commands; `told` are the events of the last one."""

    def __init__(self, *commands: Any, at_ms: int = NOVEMBER) -> None:
        self.books = BudgetState()
        self.at_ms = at_ms
        self.told: list[Any] = []
        self.take(*commands)

    def take(self, *commands: Any) -> "Ledger":
        for command in commands:
            self.told = list(decide(self.books, command, At(self.at_ms)))
            for event in self.told:
                if not isinstance(event, CommandRefused):
                    self.books = evolve(self.books, event, self.at_ms)
        return self

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.told]

    def used(self, key: str = ALICE) -> tuple[int, int]:
        account = self.books.accounts[key]
        return account.used_tokens, account.used_micros

    def reserved(self, key: str = ALICE) -> tuple[int, int]:
        account = self.books.accounts[key]
        return account.reserved_tokens, account.reserved_micros
