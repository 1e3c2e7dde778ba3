"""Budgets of model calls, and of the starts of runs: what is reserved before a call and settled after it.

Before: services/runtime/models/model_calls.py, services/runtime/run/start_handler.py. After:
services/families/budget/reservations.py.
"""

from typing import Protocol

from loomlog.connectors.errors import Permanent, Transient
from loomlog.schemas.generated.values import LimitNotice
from loomlog.schemas.records import Value


class BudgetUnavailable(Transient):
    """The budget owner does not reply. Not the provider's fault, so no fallback is tried."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unavailable")


class WorstCase(Value, frozen=True):
    """Upper bound of a call's usage: tokens of all kinds, and millionths of the currency (0 without a price)."""

    tokens: int
    micros: int


class CallAttempt(Value, frozen=True):
    """One attempt of a call: its run, its step (the turn, or which compaction) and its number, from 1."""

    run_id: str
    step: str
    attempt: int

    @property
    def id(self) -> str:
        """Id of the reservation in the budget state."""
        return f"{self.run_id}:{self.step}.{self.attempt}"


class CallReservation(Protocol):
    """Reservation for one attempt of a call. `close` must be called when the call ends, however it ends."""

    was_sent: bool
    """Whether the provider may have received the request."""

    async def reserve(self, worst: WorstCase) -> LimitNotice | None:
        """Return None when the call may be made, otherwise the limit that forbids it. Raises BudgetUnavailable."""
        ...

    async def settle(self, tokens: int, micros: int) -> tuple[LimitNotice, ...]:
        """Settle the usage of the call and return the soft limits that are reached. 0 tokens: the provider has not
        counted them, so the reserved amount counts.
        """
        ...

    def on_failure(self, error: Transient | Permanent) -> None:
        """Release the reservation of a call that failed, unless the provider may bill it."""
        ...

    def close(self) -> None:
        """Close a reservation that is still open: lost when the request was sent, released when not."""
        ...


class CallBudgets(Protocol):
    """The budgets of model calls."""

    async def wait_for_limits(self) -> None:
        """Wait until every limit from before a takeover is read. Usually returns at once. Raises BudgetUnavailable."""
        ...

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> CallReservation | None:
        """Return the reservation of a call when a known limit applies to it; `wait_for_limits` must be called first."""
        ...


class RunBudgets(CallBudgets, Protocol):
    """Those that the start of a run needs too, a child's like any other."""

    def on_takeover(self) -> None:
        """Note a partition takeover: its runs may be under limits that the replica has not read."""
        ...

    def may_be_limited(self, tenant: str, user_id: str) -> bool:
        """Return whether a limit applies to a run of the user, or may apply after a takeover."""
        ...

    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None:
        """Return the hard limit that is exhausted now, by any spender. Raises BudgetUnavailable."""
        ...


class NoBudgets:
    """Budgets without limits."""

    async def wait_for_limits(self) -> None:
        """Return at once: there are no limits."""

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> None:
        return None
