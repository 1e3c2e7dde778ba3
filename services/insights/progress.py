"""Read progress of the insights topic: positions of our own, because those of Faust may run ahead.

Faust considers a record done when the agent has moved on, even after an exception, and its commits can skip a record
that is still in progress. So the committed offset of the group is ours: every record below it was counted or
dead-lettered. Its only use: a restart reads the last minutes again to rebuild the windows, and does not dead-letter
records below the committed offset a second time.

Pure. Before: faust_adapters.py sets where reading begins. After: app.py asks what to dead-letter, faust_adapters.py
what to commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStart:
    """Where reading of one partition begins. `committed` is None when the group never committed there."""

    offset: int
    committed: int | None
    end: int
    """Offset after the last record at that moment; the windows are whole once it is passed."""


def start_offset(*, since: int | None, committed: int | None, beginning: int, end: int) -> int:
    """The first record of the history (`since`, None when no record is that young), or the first undone one before it.

    Without a commit the whole topic is undone.
    """
    undone = beginning if committed is None else min(max(committed, beginning), end)
    return undone if since is None else max(beginning, min(since, undone))


class ReadProgress:
    """Positions by partition of the thin topic; empty until reading begins."""

    __slots__ = ("_committed", "_next", "_whole_at")

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._whole_at: dict[int, int] = {}

    def begin(self, starts: Mapping[int, PartitionStart]) -> None:
        """Restarts reading at these positions; the former state is discarded."""
        self._next = {partition: start.offset for partition, start in starts.items()}
        self._committed = {partition: start.committed or 0 for partition, start in starts.items()}
        self._whole_at = {partition: start.end for partition, start in starts.items()}

    def is_new(self, partition: int, offset: int) -> bool:
        """Whether the record was not processed before, so that it is dead-lettered if it cannot be read."""
        return offset >= self._committed.get(partition, 0)

    def mark_done(self, partition: int, offset: int) -> None:
        """Marks the record and all before it as counted or dead-lettered. Ignores a revoked partition."""
        if partition in self._next:
            self._next[partition] = max(self._next[partition], offset + 1)

    def offsets_to_commit(self) -> dict[int, int]:
        """Offsets to commit for the group; empty when there is nothing new."""
        return {partition: offset for partition, offset in self._next.items() if offset > self._committed[partition]}

    def mark_committed(self, offsets: Mapping[int, int]) -> None:
        """Notes that the broker has committed these offsets."""
        self._committed.update((p, offset) for p, offset in offsets.items() if p in self._next)

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._next)

    @property
    def is_whole(self) -> bool:
        """Whether all records that the topic had when reading began are processed, so that the windows are complete."""
        return bool(self._next) and all(self._next[p] >= end for p, end in self._whole_at.items())

    def lag(self, ends: Mapping[int, int]) -> int:
        """Records between our positions and these ends."""
        return sum(max(0, end - self._next[p]) for p, end in ends.items() if p in self._next)

    @property
    def position(self) -> int:
        """Grows with every processed record; an unchanged value means no progress."""
        return sum(self._next.values())
