"""Ended runs as the owner of their partition knows them; and the index of the ones memory has forgotten.

Before: projections/audit.py keeps the index. After: command_handler.py, child_runs.py and history_handler.py continue
from such runs.
"""

from typing import Protocol

from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.records import Value


class EndedRun(Value, frozen=True, kw_only=True):
    """Position of an ended run in the log."""

    run_id: str
    tenant: str
    session_id: str
    partition: int
    first_offset: int
    last_offset: int
    ended_at_ms: int
    issued_at_ms: int = 0
    """Issue time of its start, by the clock of the sender; 0 = not known here."""

    @property
    def position(self) -> RunPosition:
        return RunPosition(run_id=self.run_id, first_offset=self.first_offset, last_offset=self.last_offset)


class RunIndex(Protocol):
    """The audit index (projections/audit.py). Raises Transient when it cannot answer."""

    async def next_offset(self, partition: int) -> int:
        """Return the offset below which the projection has folded everything."""
        ...

    async def find_run(self, run_id: str) -> EndedRun | None: ...

    async def last_run_of_session(self, session_id: str) -> EndedRun | None: ...
