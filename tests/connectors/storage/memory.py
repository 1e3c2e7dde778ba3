"""Twins in memory of what the storage keeps in Postgres, for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loomlog.connectors.storage.event_subscriptions import SubscriptionRow


class MemoryRequestKeys:
    """Protocol RequestKeys in memory."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}

    async def first_body(self, key: str, body: str) -> str:
        return self.bodies.setdefault(key, body)


@dataclass(slots=True)
class _Kept:
    row: SubscriptionRow
    owner: str
    process: str = ""


class MemorySubscriptionRows:
    """Protocol SubscriptionRows in memory; times never pass, `drop` gives up what a process has."""

    def __init__(self) -> None:
        self.kept: dict[str, _Kept] = {}

    async def put(self, row: SubscriptionRow, owner: str, lifetime_s: float) -> SubscriptionRow:
        kept = self.kept.setdefault(row.id, _Kept(row, owner))
        kept.row = kept.row._replace(sealed=row.sealed)
        return kept.row

    async def find(self, subscription_id: str) -> SubscriptionRow | None:
        kept = self.kept.get(subscription_id)
        return None if kept is None else kept.row

    async def count(self, owner: str) -> int:
        return sum(kept.owner == owner for kept in self.kept.values())

    async def delete(self, subscription_id: str) -> bool:
        return self.kept.pop(subscription_id, None) is not None

    async def claim(self, process: str, lease_s: float, limit: int) -> list[SubscriptionRow]:
        free = [kept for kept in self.kept.values() if not kept.process][:limit]
        for kept in free:
            kept.process = process
        return [kept.row for kept in free]

    async def advance(self, row: SubscriptionRow, process: str, lease_s: float) -> SubscriptionRow | None:
        kept = self.kept.get(row.id)
        if kept is None or kept.process != process:
            return None
        kept.row = row._replace(sealed=kept.row.sealed)
        return kept.row

    def drop(self, process: str) -> None:
        """Give up what a process has, as its death does."""
        for kept in self.kept.values():
            kept.process = "" if kept.process == process else kept.process


class MemoryCredentialRows:
    """Encrypted credentials in memory. `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = lambda: 0.0) -> None:
        self._clock_s = clock_s
        self.rows: dict[str, tuple[bytes, float]] = {}

    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        self.rows.setdefault(run_id, (sealed, self._clock_s() + lifetime_s))

    async def get(self, run_id: str) -> bytes | None:
        row = self.rows.get(run_id)
        return row[0] if row is not None and row[1] > self._clock_s() else None

    async def delete(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self.rows.pop(run_id, None)

    async def sweep(self) -> int:
        over = [run_id for run_id, (_, until) in self.rows.items() if until <= self._clock_s()]
        await self.delete(over)
        return len(over)
