"""A feed of changes of memory, in memory."""

from collections.abc import Collection

from loomlog.connectors.errors import Transient
from loomlog.projections.memory_feed.reads import PAGE_MAX, FeedBounds
from loomlog.projections.memory_feed.tables import ChangeRow
from loomlog.projections.tables import EVERY_TENANT, Scope
from loomlog.services.application.errors import unavailable

AT_MS = 1_780_000_000_000


class MemoryChangeFeed:
    """Rows that `add` appends; counts its reads, and fails them while it is `away`."""

    def __init__(self) -> None:
        self.rows: list[ChangeRow] = []
        self.floor = 0
        self.away = False
        self.reads = 0

    def add(self, key: str, *, tenant: str = "acme", kind: str = "memory.set", scope_id: str = "ada") -> int:
        """Append a change and return its seq."""
        seq = self.last + 1
        self.rows.append(ChangeRow(seq, tenant, kind, "user", scope_id, key, AT_MS, 0, seq, 0))
        return seq

    def forget(self, until: int) -> None:
        """Drop the rows up to a seq, as the retention does."""
        self.rows = [row for row in self.rows if row.seq > until]
        self.floor = until

    @property
    def last(self) -> int:
        return self.rows[-1].seq if self.rows else self.floor

    async def bounds(self) -> FeedBounds:
        self._read()
        return FeedBounds(self.floor, self.last)

    async def changes(self, tenant: Scope, types: Collection[str], *, after: int) -> list[ChangeRow]:
        self._read()
        rows = [row for row in self.rows if row.seq > after and row.type in types]
        return [row for row in rows if tenant in (EVERY_TENANT, row.tenant)][:PAGE_MAX]

    def _read(self) -> None:
        self.reads += 1
        if self.away:
            raise unavailable("projection", Transient("no answer", kind="timeout"))
