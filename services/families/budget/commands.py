"""Commands of the budget family as the core receives them: the request, and the time of its decision.

Before: the command handler (services/families/budget/family.py) adds the time. After: decide.py.
"""

from loomlog.schemas.generated.budget_commands import Command
from loomlog.schemas.records import Value


class BudgetRequest(Value, frozen=True, kw_only=True):
    """A command, decided at `at_ms`, UTC milliseconds by the owner's clock."""

    at_ms: int
    command: Command


class RecoverBudgets(Value, frozen=True, kw_only=True):
    """A new owner has folded the budget state. It runs no calls, so nothing was lost with the old one."""

    at_ms: int


class BudgetTimerFired(Value, frozen=True, kw_only=True):
    """A reservation has expired."""

    at_ms: int


BudgetCommandInput = BudgetRequest | RecoverBudgets | BudgetTimerFired
