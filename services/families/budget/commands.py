"""Commands of the budget family as the core sees them: what was asked, and when it is decided.

Before: the desk (services/families/budget/family.py) adds the time. After: decide.py.
"""

from loomlog.schemas.generated.budget_commands import Command
from loomlog.schemas.records import Value


class BudgetRequest(Value, frozen=True, kw_only=True):
    """A command, decided at `at_ms`, UTC milliseconds by the owner's clock."""

    at_ms: int
    command: Command


class RecoverBudgets(Value, frozen=True, kw_only=True):
    """A new owner has folded the books. No call is theirs, so nothing was lost with the old one."""

    at_ms: int


class BudgetTimerFired(Value, frozen=True, kw_only=True):
    """The time of a reservation is up, and nobody else says so."""

    at_ms: int


BudgetCommandInput = BudgetRequest | RecoverBudgets | BudgetTimerFired
