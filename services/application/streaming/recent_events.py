"""Recent events of the log by run, bounded by bytes and age, for late subscribers.

A new subscriber finds here what the read models do not have yet, and the previews of the current turn. The oldest are
dropped first, whatever run they belong to; dropped events are in the read models.
"""

from collections import deque

from loomlog.services.application.limits import ITEM_OVERHEAD_BYTES, RECENT_AGE_MAX_S, RECENT_BYTES_MAX
from loomlog.services.application.streaming.items import StoredItem


class RecentEvents:
    """Items in arrival order. Times are monotonic seconds."""

    __slots__ = ("_age_s", "_max_bytes", "_order", "_runs", "bytes")

    def __init__(self, *, max_bytes: int = RECENT_BYTES_MAX, age_s: float = RECENT_AGE_MAX_S) -> None:
        self._max_bytes = max_bytes
        self._age_s = age_s
        self._runs: dict[str, list[StoredItem]] = {}
        self._order: deque[tuple[float, str, int]] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    def add(self, run_id: str, stored: StoredItem, now: float) -> None:
        size = len(stored[1]) + ITEM_OVERHEAD_BYTES
        kepts = self._runs.get(run_id)
        if kepts is None:
            self._runs[run_id] = [stored]
        else:
            kepts.append(stored)
        self._order.append((now, run_id, size))
        self.bytes += size
        while self.bytes > self._max_bytes:
            self._drop_oldest()

    def of_run(self, run_id: str) -> list[StoredItem]:
        """Return the stored items of a run, oldest first."""
        return list(self._runs.get(run_id, ()))

    def drop_expired(self, now: float) -> None:
        """Drop items older than the limit."""
        while self._order and now - self._order[0][0] > self._age_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, run_id, size = self._order.popleft()
        self.bytes -= size
        kept = self._runs[run_id]
        if len(kept) == 1:
            del self._runs[run_id]
        else:
            del kept[0]
