"""The feed of changes of memory, as a process reads it.

Before: services/application/queries/change_feed.py provides it. After: services/families/memory/change_stream.py.
"""

from collections.abc import Collection
from typing import Protocol

from loomlog.projections.memory_feed.reads import FeedBounds
from loomlog.projections.memory_feed.tables import ChangeRow
from loomlog.projections.tables import Scope


class ChangeFeed(Protocol):
    """Reads of the feed. Both raise Refused(projection_unavailable)."""

    async def bounds(self) -> FeedBounds: ...
    async def changes(self, tenant: Scope, types: Collection[str], *, after: int) -> list[ChangeRow]:
        """Return the first changes behind a seq, at most PAGE_MAX."""
        ...
