"""Limits on spending on their way into a state file, and out of it again.

A limit takes along what was spent under it in its month, so nobody has a second budget because he has moved. What is
set aside for calls under way counts as spent: they may be billed there, and are made once more here. Of another month
than the present one nothing is left to count.

Before: state_files.py. After: restore.py, services/application/admin/budget_limits.py.
"""

from collections.abc import Iterator
from typing import Any

from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.budget.amounts import account_at
from loomlog.services.families.budget.calendar_month import month_of
from loomlog.services.families.budget.state import BudgetState, Limit
from loomlog.services.stream.archive.state_file import StatedLimit

SHARED_FIELDS = tuple(
    name for name in StatedLimit.__struct_fields__ if name not in ("month", "used_tokens", "used_micros")
)
"""What a limit and the command that sets it have in common."""


def export_limits(budget_state: BudgetState, at_ms: int) -> Iterator[StatedLimit]:
    """Those of the books at that time, by account."""
    for key, limit in sorted(budget_state.limits.items()):
        account = account_at(budget_state, key, at_ms)
        yield StatedLimit(
            **_shared_fields(limit),
            month=month_of(at_ms),
            used_tokens=account.used_tokens + account.reserved_tokens,
            used_micros=account.used_micros + account.reserved_micros,
        )


def to_command(limit: StatedLimit, envelope: CommandEnvelope, at_ms: int) -> SetLimit:
    """The order that makes it a limit here."""
    is_this_month = limit.month == month_of(at_ms)
    return SetLimit(
        envelope=envelope,
        **_shared_fields(limit),
        used_tokens=limit.used_tokens if is_this_month else 0,
        used_micros=limit.used_micros if is_this_month else 0,
    )


def _shared_fields(limit: Limit | StatedLimit) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in SHARED_FIELDS}
