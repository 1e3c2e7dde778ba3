"""Spending limits on export to a state file, and on import from one.

A limit is exported with the amount spent under it in its month, so a move does not renew the budget. Amounts reserved
for calls in progress count as spent: they may be billed at the source, and are made once more here. Amounts of another
month than the current one are dropped.

Before: services/application/transfer/state_files.py and restore.py. After: spending_limits.py.
"""

from collections.abc import Iterator
from typing import Any

from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.calendar_month import month_of
from loomlog.services.families.budget.amounts import account_at
from loomlog.services.families.budget.state import BudgetState, Limit
from loomlog.services.stream.archive.state_file import StatedLimit

SHARED_FIELDS = tuple(
    name for name in StatedLimit.__struct_fields__ if name not in ("month", "used_tokens", "used_micros")
)
"""Fields shared by a limit and the command that sets it."""


def export_limits(budget_state: BudgetState, at_ms: int) -> Iterator[StatedLimit]:
    """Yield the limits of the books at that time, ordered by account."""
    for key, limit in sorted(budget_state.limits.items()):
        account = account_at(budget_state, key, at_ms)
        yield StatedLimit(
            **_shared_fields(limit),
            month=month_of(at_ms),
            used_tokens=account.used_tokens + account.reserved_tokens,
            used_micros=account.used_micros + account.reserved_micros,
        )


def to_command(limit: StatedLimit, envelope: CommandEnvelope, at_ms: int) -> SetLimit:
    """Return the command that sets the limit here."""
    is_this_month = limit.month == month_of(at_ms)
    return SetLimit(
        envelope=envelope,
        **_shared_fields(limit),
        used_tokens=limit.used_tokens if is_this_month else 0,
        used_micros=limit.used_micros if is_this_month else 0,
    )


def _shared_fields(limit: Limit | StatedLimit) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in SHARED_FIELDS}
