"""Budgets in a process: opened once. People set limits in the api, runtimes reserve under them.

Before: services/families/opening.py. After: spending_limits.py, reservations.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.model import DEFAULT_CURRENCY
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.reservations import BudgetReservations
from loomlog.services.families.budget.spending_limits import BudgetLimits
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, FamilyServices, RunningProcess
from loomlog.services.families.ports.call_budgets import RunBudgets
from loomlog.services.families.ports.current_request import CurrentRequest
from loomlog.services.families.ports.recorded_spending import RecordedSpending
from loomlog.services.families.ports.spending_limits import SpendingLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """What the configuration says of budgets."""

    currency: str = DEFAULT_CURRENCY
    """The currency of prices, and of limits in money."""


def read_options(loaded: ProcessConfiguration) -> BudgetOptions:
    """Return the options of a process."""
    return BudgetOptions(currency=loaded.configuration.pricing.currency)


def open_family(context: FamilyContext) -> FamilyServices:
    """Open budgets."""
    process, request = context.find(RunningProcess), context.find(CurrentRequest)
    accounts = BudgetAccounts(
        context.parts,
        clock_ms=context.clock_ms,
        fresh_token=context.new_token if request is None else request.command_ids("budget"),
        name="api" if process is None else process.name,
    )
    context.provide(accounts)
    context.provide_as(RunBudgets, BudgetReservations(accounts, context.clock_ms))
    if (spending := context.find(RecordedSpending)) is not None:
        limits = BudgetLimits(
            accounts,
            spending,
            clock_ms=context.clock_ms,
            currency=context.options(BudgetOptions).currency,
            wait_s=context.get(InstallationCommands).wait_s,
        )
        context.provide(limits)
        context.provide_as(SpendingLimits, limits)

    def start_positions(tenant: str, agent: str, user_id: str) -> Sequence[str]:
        position = accounts.limits_position()
        return (position,) if position else ()

    return FamilyServices(start_positions=start_positions)
