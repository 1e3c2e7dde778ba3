"""Commands of the budget family as the core sees them: what was asked, and when it is decided.

Before: the desk (services/families/budget/family.py) adds the time. After: decide.py.
"""

from dataclasses import dataclass

from loomlog.schemas.generated.budget_commands import Command
from loomlog.schemas.quick import frozen_on_paper


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """A command, decided at `at_ms`, UTC milliseconds by the owner's clock."""

    at_ms: int
    command: Command


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverBudgets:
    """A new owner has folded the books. No call is theirs, so nothing was lost with the old one."""

    at_ms: int


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTimerFired:
    """The time of a reservation is up, and nobody else says so."""

    at_ms: int


BudgetCommandInput = BudgetRequest | RecoverBudgets | BudgetTimerFired
