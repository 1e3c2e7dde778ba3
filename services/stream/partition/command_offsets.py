"""The handled commands of a partition, which may be handled out of order.

A command that waits for a lookup must not hold up the others, so "handled" is a low-water mark and the set above it. No
committed group offset is needed: events name the offset of the command that caused them, and a partition snapshot has
the mark.
"""


class CommandProgress:
    """`low`: every command below is handled. Offsets are those of one commands partition."""

    __slots__ = ("_above", "low")

    def __init__(self, low: int = 0, above: tuple[int, ...] = ()) -> None:
        self.low = low
        self._above = set(above)

    @property
    def above(self) -> tuple[int, ...]:
        return tuple(sorted(self._above))

    @property
    def ahead(self) -> int:
        """Number of handled commands above the mark."""
        return len(self._above)

    def is_handled(self, offset: int) -> bool:
        return offset < self.low or offset in self._above

    def mark_handled(self, offset: int) -> None:
        """Mark one command; the low-water mark moves over contiguous ones."""
        if offset < self.low:
            return
        self._above.add(offset)
        while self.low in self._above:
            self._above.remove(self.low)
            self.low += 1
