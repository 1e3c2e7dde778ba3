"""The handlers of the operations on stored state files.

Before: services/application/dispatch.py. After: services/application/transfer/state_files.py.
"""

from typing import TYPE_CHECKING

from loomlog.services.application import limits
from loomlog.services.application.answers.state_files import StateFileList
from loomlog.services.application.operations import state_files as api
from loomlog.services.application.queries.json_types import StateFile
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput, NoOutput
from loomlog.services.core.times import parse_time_ms

if TYPE_CHECKING:  # it opens these handlers
    from loomlog.services.application.application import Application


class StateFileHandlers:
    """One method for each operation. All raise Refused."""

    def __init__(self, application: "Application") -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.CREATE: self.create, api.LIST: self.list, api.DELETE: self.delete}

    async def create(self, call: Call[api.StateFileCreate]) -> Answer[StateFile]:
        """Create a state file."""
        asked = call.input
        since = asked.include_history_since
        request = StateFileRequest(
            label=asked.label or "",
            tenant=asked.tenant or "",
            include_history=asked.include_history is not False,
            since_ms=parse_time_ms("include_history_since", since) if since else 0,
            max_bytes=asked.max_bytes or limits.STATE_FILE_BYTES_MAX,
        )
        return Answer(value=await self._application.backups.create(call.principal, request))

    async def list(self, call: Call[NoInput]) -> Answer[StateFileList]:
        """Return the stored state files."""
        return Answer(value={"entries": await self._application.backups.list(call.principal)})

    async def delete(self, call: Call[api.StateFileNamed]) -> Answer[NoOutput]:
        """Delete a stored state file."""
        await self._application.backups.remove(call.principal, call.input.snapshot_id)
        return Answer(value=NoOutput())
