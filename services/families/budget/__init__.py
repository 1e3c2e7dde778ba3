"""Spending limits: what accounts may spend in a month, and what model calls have reserved and used of it.

All accounts of an installation are one aggregate, `budget:/installation`, because one call is charged to up to three of
them (state.py). No transport is generated for its commands: limits have an HTTP shape of their own
(services/api/budget_endpoints.py), and runtimes reserve and settle (services/runtime/models/budget_reservation.py).
"""

from typing import Any

from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.families import (
    Audit,
    Command,
    Erasure,
    Family,
    Lifecycle,
    Reads,
    Rebuild,
    Rules,
    StateFiles,
    aggregate_id,
)
from loomlog.services.families.budget.decide import decide as decide_budget
from loomlog.services.families.budget.decide import next_timer_ms
from loomlog.services.families.budget.state import VERSION, BudgetState, evolve

NAME = "installation"
INSTALLATION = aggregate_id("budget", "", NAME)
"""Full id of the only aggregate."""


def _command(record: type[Any], verb: str, summary: str, scope: str) -> Command[Any]:
    return Command(
        record=record,
        verb=verb,
        summary=summary,
        aggregate=lambda command: NAME,
        scope=scope,
        in_tool=False,
        in_transports=False,
    )


FAMILY = Family(
    name="budget",
    summary="The spending limits of an installation, and what is reserved and used under them.",
    rules=Rules(
        state=BudgetState,
        initial=lambda aggregate: BudgetState(),
        decide=decide_budget,  # under another name, so that it does not hide its module
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=Lifecycle(
        # The section "limits": sums and reservations stay with the calls that made them.
        state_files=StateFiles.SECTION,
        erasure=Erasure.NOTHING,
        audit=Audit.WHOLE,
        rebuild=Rebuild.EVENTS,
    ),
    commands=(
        _command(SetLimit, "limit", "Set the limits of an account.", TENANT),
        _command(RemoveLimit, "unlimit", "Remove the limits of an account.", TENANT),
        _command(ReserveBudget, "reserve", "Reserve the worst case of a model call.", ADMIN),
        _command(SettleBudget, "settle", "Count what a model call has used.", ADMIN),
        _command(ReleaseBudget, "release", "Release the reservation of a call that cost nothing.", ADMIN),
    ),
    reads=Reads.REPLICATED,
)
