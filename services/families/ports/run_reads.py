"""What families read of runs in the read models: lists, numbers, and what they have used.

Before: services/application/application.py provides them. After: the families of identities and of pauses.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from loomlog.projections.run_queries import ActiveRuns, RunFilter, RunPage, UserActivity
from loomlog.projections.tables import Scope


class RunReads(Protocol):
    """All raise Refused(projection_unavailable)."""

    async def runs(self, scope: Scope, criteria: RunFilter, *, limit: int, after: str = "") -> RunPage: ...
    async def count_active(self, scope: Scope) -> list[ActiveRuns]: ...
    async def user_activity(self, scope: Scope, user_id: str | None) -> list[UserActivity]: ...
    async def usage(
        self, scope: Scope, group_by: Sequence[str], *, user_id: str | None, since_day: str, until_day: str
    ) -> list[dict[str, Any]]: ...
