"""How far the topic has been dealt with: positions that we decide about, because those of Faust may run ahead.

Faust takes a record as done when the agent has moved on, also after an exception, and its commits can skip one that is
still in work. So the offset that is committed for the group is ours: everything below it was counted or parked. It does
one thing: a restart reads the last minutes again to rebuild the windows, and what lies below the committed offset is
not parked a second time.

Pure bookkeeping. Before: rereading tells where reading begins. After: app asks what to park, rereading what to commit.
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
    """Begin at the first record of the history (`since`, None when there is none that young), but skip nothing undone.

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
        """Reading begins anew at these positions; what was known is void."""
        self._next = {partition: start.offset for partition, start in starts.items()}
        self._committed = {partition: start.committed or 0 for partition, start in starts.items()}
        self._whole_at = {partition: start.end for partition, start in starts.items()}

    def is_new(self, partition: int, offset: int) -> bool:
        """Nobody has dealt with that record before, so it has to be parked when it cannot be read."""
        return offset >= self._committed.get(partition, 0)

    def mark_done(self, partition: int, offset: int) -> None:
        """The record was counted or parked, and all before it. A partition that was taken away is ignored."""
        if partition in self._next:
            self._next[partition] = max(self._next[partition], offset + 1)

    def offsets_to_commit(self) -> dict[int, int]:
        """Offsets to commit for the group; empty when there is nothing new."""
        return {partition: offset for partition, offset in self._next.items() if offset > self._committed[partition]}

    def mark_committed(self, offsets: Mapping[int, int]) -> None:
        """The broker has these."""
        self._committed.update((p, offset) for p, offset in offsets.items() if p in self._next)

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._next)

    @property
    def is_whole(self) -> bool:
        """Everything that was in the topic when reading began has been dealt with, so the windows are complete."""
        return bool(self._next) and all(self._next[p] >= end for p, end in self._whole_at.items())

    def lag(self, ends: Mapping[int, int]) -> int:
        """Records between our positions and these ends."""
        return sum(max(0, end - self._next[p]) for p, end in ends.items() if p in self._next)

    @property
    def position(self) -> int:
        """Grows with every record dealt with; equal twice means that nothing happened."""
        return sum(self._next.values())
