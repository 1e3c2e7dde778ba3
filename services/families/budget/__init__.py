"""Spending limits: what accounts may spend in a month, and what model calls have reserved and used of it.

All accounts of an installation are one aggregate, `budget:/installation`, because one call is charged to up to three of
them (state.py). No transport is generated for its commands: limits have a shape of their own
(services/application/operations/budgets.py), and runtimes reserve and settle
(reservations.py).
"""

from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.services.core.families import Rules, StateFiles, installation_aggregate, installation_family
from loomlog.services.families.budget.decide import decide as decide_budget
from loomlog.services.families.budget.decide import next_timer_ms
from loomlog.services.families.budget.state import VERSION, BudgetState, evolve

INSTALLATION = installation_aggregate("budget")
"""Full id of the only aggregate."""


FAMILY = installation_family(
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
    # The section "limits": sums and reservations stay with the calls that made them.
    state_files=StateFiles.SECTION,
    services="loomlog.services.families.budget.services",
    commands={
        SetLimit: ("limit", "Set the limits of an account."),
        RemoveLimit: ("unlimit", "Remove the limits of an account."),
        ReserveBudget: ("reserve", "Reserve the worst case of a model call."),
        SettleBudget: ("settle", "Count what a model call has used."),
        ReleaseBudget: ("release", "Release the reservation of a call that cost nothing."),
    },
)
