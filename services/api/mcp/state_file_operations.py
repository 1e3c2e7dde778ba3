"""State files within a message: what HTTP gives as a download is a text here, and is bounded.

Before: server.py finds them in the table. After: services/application/transfer.
"""

from contextlib import closing
from typing import Annotated, Any

import orjson
from msgspec import Meta

from loomlog.services.application.application import Application
from loomlog.services.application.operations.state_files import StateFileNamed
from loomlog.services.application.operations.streams import READ_STATE_FILE
from loomlog.services.application.queries.json_types import StateFile
from loomlog.services.core.operations import (
    Answer,
    AnyOperation,
    Call,
    Effect,
    Handlers,
    McpTool,
    Operation,
    Output,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.state_reader import decompressed

EXPORT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of a state file in a message: as many as a message to us may have. Larger ones are downloaded over HTTP."""


class StateFileExport(Output, frozen=True, kw_only=True):
    """A state file with its content."""

    snapshot_id: Annotated[str, Meta(description="Id of the state file.")]
    json_content: Annotated[Any, Meta(description="Its content.")]


GET = Operation(
    name="state_file.get",
    summary="Get what a stored state file contains; state_file.export has the content.",
    input=StateFileNamed,
    output=StateFile,
    access=READ_STATE_FILE,
    effect=Effect.READ,
    mcp=(McpTool(tool="get_snapshot"),),
)
EXPORT = Operation(
    name="state_file.export",
    summary="Get the content of a stored state file of at most 4 MiB; larger ones are downloaded over HTTP.",
    input=StateFileNamed,
    output=StateFileExport,
    access=READ_STATE_FILE,
    effect=Effect.READ,
    mcp=(McpTool(tool="export_snapshot"),),
)
OPERATIONS: tuple[AnyOperation, ...] = (GET, EXPORT)


class StateFileOperations:
    """The handlers. All raise Refused."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {GET: self.get, EXPORT: self.export}

    async def get(self, call: Call[StateFileNamed]) -> Answer[StateFile]:
        """Return the manifest of a state file."""
        return Answer(value=await self._application.backups.manifest(call.input.snapshot_id))

    async def export(self, call: Call[StateFileNamed]) -> Answer[StateFileExport]:
        """Return the content of a state file."""
        snapshot_id = call.input.snapshot_id
        _, file = await self._application.backups.open(snapshot_id)
        with closing(file):
            content = decompressed(file).read(EXPORT_BYTES_MAX + 1)
        if len(content) > EXPORT_BYTES_MAX:
            text = f"the state file has more than {EXPORT_BYTES_MAX} bytes: GET /v1/_snapshots/{snapshot_id}/export"
            raise Refused("snapshot_too_large", text)
        return Answer(value=StateFileExport(snapshot_id=snapshot_id, json_content=orjson.loads(content)))
