"""What was spent before anybody counted it: sums of the read models.

Before: services/application/queries/usage.py. After: services/families/budget/spending_limits.py.
"""

from typing import Protocol

from loomlog.projections.tables import Scope


class RecordedSpending(Protocol):
    """What model calls have used, by the read models."""

    async def spent_since(self, scope: Scope, since_day: str, *, user_id: str | None, currency: str) -> tuple[int, int]:
        """Return tokens and millionths of the currency, once the read models have read the whole log.

        Raises Refused: not_yet, log_unavailable, projection_unavailable.
        """
        ...
