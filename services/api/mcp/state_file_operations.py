"""State files within a message: what HTTP gives as a download is a text here, and is bounded.

Before: server.py finds them in the table. After: services/application/transfer.
"""

from contextlib import closing
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, cast

import orjson
from msgspec import UNSET, Meta, UnsetType

from loomlog.services.application.answers.state_files import Restored
from loomlog.services.application.application import Application
from loomlog.services.application.errors import bad_request
from loomlog.services.application.operations.state_files import StateFileNamed
from loomlog.services.application.queries.json_types import StateFile
from loomlog.services.application.transfer.restored import SPOOL_BYTES, restored_json, spool_document
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import (
    Answer,
    AnyOperation,
    Call,
    Effect,
    Handlers,
    Input,
    McpTool,
    Operation,
    Output,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.state_reader import decompressed

EXPORT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of a state file in a message: as many as a message to us may have. Larger ones are downloaded over HTTP."""


class StateFileRestore(Input, frozen=True, kw_only=True):
    """A stored state file, or the content of one."""

    snapshot_id: Annotated[str, Meta(description="Id of the stored state file.")] | UnsetType = UNSET
    raw_json: Annotated[Any, Meta(description="Instead of it: the content of one, an object or its text.")] = None
    include_history: Annotated[bool | None, Meta(description="Without effect: what is in the file is restored.")] = None


class StateFileExport(Output, frozen=True, kw_only=True):
    """A state file with its content."""

    snapshot_id: Annotated[str, Meta(description="Id of the state file.")]
    json_content: Annotated[Any, Meta(description="Its content.")]


GET = Operation(
    name="state_file.get",
    summary="Get what a stored state file contains; state_file.export has the content.",
    input=StateFileNamed,
    output=StateFile,
    access=requires(ADMIN),
    effect=Effect.READ,
    mcp=(McpTool(tool="get_snapshot"),),
)
EXPORT = Operation(
    name="state_file.export",
    summary="Get the content of a stored state file of at most 4 MiB; larger ones are downloaded over HTTP.",
    input=StateFileNamed,
    output=StateFileExport,
    access=requires(ADMIN),
    effect=Effect.READ,
    mcp=(McpTool(tool="export_snapshot"),),
)
RESTORE = Operation(
    name="state_file.restore",
    summary="Restore a stored state file, or one that is given. What exists already is not changed.",
    input=StateFileRestore,
    output=Restored,
    access=requires(ADMIN),
    effect=Effect.WAIT,
    mcp=(McpTool(tool="restore_snapshot"),),
)
OPERATIONS: tuple[AnyOperation, ...] = (GET, EXPORT, RESTORE)


class StateFileOperations:
    """The handlers. All raise Refused."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {GET: self.get, EXPORT: self.export, RESTORE: self.restore}

    async def get(self, call: Call[StateFileNamed]) -> Answer[StateFile]:
        """Return the manifest of a state file."""
        return Answer(value=await self._application.backups.manifest(call.principal, call.input.snapshot_id))

    async def export(self, call: Call[StateFileNamed]) -> Answer[StateFileExport]:
        """Return the content of a state file."""
        snapshot_id = call.input.snapshot_id
        _, file = await self._application.backups.open(call.principal, snapshot_id)
        with closing(file):
            content = decompressed(file).read(EXPORT_BYTES_MAX + 1)
        if len(content) > EXPORT_BYTES_MAX:
            text = f"the state file has more than {EXPORT_BYTES_MAX} bytes: GET /v1/_snapshots/{snapshot_id}/export"
            raise Refused("snapshot_too_large", text)
        return Answer(value=StateFileExport(snapshot_id=snapshot_id, json_content=orjson.loads(content)))

    async def restore(self, call: Call[StateFileRestore]) -> Answer[Restored]:
        """Restore a stored state file, or one that the message has."""
        asked = call.input
        if (asked.snapshot_id is UNSET) == (asked.raw_json is None):
            raise bad_request("expected either snapshot_id or raw_json")
        if asked.snapshot_id is not UNSET:
            _, kept = await self._application.backups.open(call.principal, asked.snapshot_id)
            with closing(kept) as file:
                return await self._restore(call, file)
        with SpooledTemporaryFile(max_size=SPOOL_BYTES) as sent:
            spool_document(_document(asked.raw_json), cast("IO[bytes]", sent))
            return await self._restore(call, cast("IO[bytes]", sent))

    async def _restore(self, call: Call[StateFileRestore], file: IO[bytes]) -> Answer[Restored]:
        restoring = self._application.state_restore
        result = await restoring.restore(call.principal, file, dry_run=False, sealed=False, in_clear=False)
        answer = restored_json(result, has_unused_field=call.input.include_history is not None)
        return Answer(value=answer, positions=tuple(answer["positions"]))


def _document(raw_json: Any) -> dict[str, Any]:
    """Return the content of a state file. Raises Refused(bad_request)."""
    try:
        document = orjson.loads(raw_json) if isinstance(raw_json, str) else raw_json
    except orjson.JSONDecodeError as error:
        raise bad_request(f"raw_json: {error}") from error
    if not isinstance(document, dict):
        raise bad_request("raw_json: expected an object")
    return document
