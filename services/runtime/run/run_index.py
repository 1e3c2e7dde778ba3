"""A run that is over, as the owner of its partition knows it; and the index that knows the ones memory has forgotten.

Before: projections/audit.py keeps the index. After: command_handler.py, child_runs.py and history_handler.py go on from
such runs.
"""

from typing import Protocol

from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.records import Value


class EndedRun(Value, frozen=True, kw_only=True):
    """Where a run that is over lies in the log."""

    run_id: str
    tenant: str
    session_id: str
    partition: int
    first_offset: int
    last_offset: int
    ended_at_ms: int
    issued_at_ms: int = 0
    """When its start was issued, by the clock of the sender; 0 = not known here."""

    @property
    def position(self) -> RunPosition:
        return RunPosition(run_id=self.run_id, first_offset=self.first_offset, last_offset=self.last_offset)


class RunIndex(Protocol):
    """The audit index (projections/audit.py). Raises Transient when it cannot answer."""

    async def next_offset(self, partition: int) -> int:
        """The projection has folded everything below this offset."""
        ...

    async def find_run(self, run_id: str) -> EndedRun | None: ...

    async def last_run_of_session(self, session_id: str) -> EndedRun | None: ...
