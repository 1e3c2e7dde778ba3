"""Limits on what is spent, as people set and see them, and as state files have them.

Before: services/application/operations/budget_handlers.py, services/application/transfer. After:
services/families/budget/spending_limits.py.
"""

from collections.abc import Iterator
from typing import Protocol

from loomlog.schemas.records import Value
from loomlog.services.core.access.decide import Caller
from loomlog.services.stream.archive.state_file import StatedLimit


class LimitRequest(Value, frozen=True, kw_only=True):
    """A limit as requested; None = no such limit. `tenant` None: the caller's."""

    scope: str
    tenant: str | None = None
    scope_id: str = ""
    soft_tokens: int | None = None
    hard_tokens: int | None = None
    soft_micros: int | None = None
    hard_micros: int | None = None
    strict: bool = False


class LimitView(Value, frozen=True, kw_only=True):
    """A limit with the amounts used and reserved under it this month. Micros are millionths of `currency`."""

    scope: str
    tenant: str
    scope_id: str
    soft_tokens: int | None
    hard_tokens: int | None
    soft_micros: int | None
    hard_micros: int | None
    strict: bool
    currency: str
    by: str
    at_ms: int
    used_tokens: int
    used_micros: int
    reserved_tokens: int
    reserved_micros: int


class SpendingLimits(Protocol):
    """The limits of the installation. Methods that are given a caller raise Refused."""

    async def limits(self, caller: Caller, tenant: str = "") -> list[LimitView]:
        """Return the limits the caller may see, the widest first. An administrator may select one tenant."""
        ...

    async def set(self, caller: Caller, request: LimitRequest) -> tuple[LimitView, str]:
        """Set a limit; returns it as it is now, and the position of its event."""
        ...

    async def remove(self, caller: Caller, scope: str, tenant: str | None, scope_id: str) -> str:
        """Remove a limit; returns the position of the event, empty when there was no such limit."""
        ...

    async def restore(self, caller: Caller, limit: StatedLimit, *, dry_run: bool) -> str | None:
        """Set a limit of another installation here; returns its position, or None when the account has one. The caller
        is an administrator.
        """
        ...

    async def caught_up(self) -> None:
        """Wait until everything that is in the log now is read. Raises Transient."""
        ...

    def exported(self) -> Iterator[StatedLimit]:
        """Yield the limits as they are now, ordered by account."""
        ...
