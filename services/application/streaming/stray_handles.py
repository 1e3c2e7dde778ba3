"""Chosen handles of live runs that are not in the partition of their handle.

A fresh run with a chosen handle belongs to the partition of the handle's hash (runs/run_ids.py), whose owner refuses a
second one. A run that continues a session, a fork, and a run with an Idempotency-Key may have the handle in another
partition, where that owner does not see it. These are few, so the process that starts runs remembers them, and a start
with a handle never waits for a read model.

Before: event_hub.py tells starts and ends; bootstrap.py those that were live before. After: runs/start.py.
"""

from loomlog.schemas.ids import partition_key
from loomlog.services.application.runs.run_ids import handle_token


class StrayHandles:
    """The live runs of such handles."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], str] = {}
        self._handles: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def run_started(self, run_id: str, tenant: str, agent_id: str) -> None:
        """Remember the run if its handle was chosen and is of another partition key than its own."""
        if agent_id[2:] == run_id[2:] or partition_key(run_id) == handle_token(tenant, agent_id):
            return
        self._handles[run_id] = (tenant, agent_id)
        self._runs[tenant, agent_id] = run_id

    def run_ended(self, run_id: str) -> None:
        """Forget the run."""
        handle = self._handles.pop(run_id, None)
        if handle is not None and self._runs.get(handle) == run_id:
            del self._runs[handle]

    def run_with(self, tenant: str, agent_id: str) -> str:
        """Return the id of the newest such run; empty if there is none."""
        return self._runs.get((tenant, agent_id), "")
