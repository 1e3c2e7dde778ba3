"""Where aggregates rest: a row of the read model for each, and an index of the commands that were handled.

The owner keeps an aggregate in memory while something happens in it, and loads it from its row when it is needed again.
A row is complete once the projector has passed the aggregate's last event, so every answer comes with the position up
to which the rows are complete.

Before: handler.py asks. After: projections/entities.py (rows.py), or the log itself (LogRows).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from loomlog.schemas.records import Value


class ColdAggregate(Value, frozen=True, kw_only=True):
    """An aggregate at rest, verified. `state` is None when the row cannot be used: it was edited, or made by another
    version of the fold; `problem` says which.
    """

    aggregate: str
    tenant: str
    state: Any
    seq: int
    digest: bytes
    first_offset: int
    last_offset: int
    size_bytes: int = 0
    """Size of the encoded state."""
    problem: str = ""


class HandledCommand(Value, frozen=True, kw_only=True):
    """A command that was handled: the offsets of the first and the last event of its decision."""

    first_offset: int
    last_offset: int


class ColdRows(Protocol):
    """The rows of resting aggregates. All methods raise Transient while they cannot be read."""

    async def next_offset(self, partition: int) -> int:
        """Return the offset below which every event of the partition is in the rows."""
        ...

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, Mapping[str, ColdAggregate]]:
        """Return the rows of these aggregates, and the offset below which every event is in the rows."""
        ...

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        """Return where a command of an aggregate was handled, and the offset below which all are known."""
        ...

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        """Return the first timers of aggregates at rest: full id and time, UTC milliseconds."""
        ...
