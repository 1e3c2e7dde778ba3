"""The handlers of the operations on stored state files.

Before: services/application/dispatch.py. After: services/application/transfer/state_files.py.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, closing
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import orjson

from loomlog.services.application import limits
from loomlog.services.application.answers.state_files import Restored, StateFileList
from loomlog.services.application.errors import bad_request
from loomlog.services.application.operations import state_files as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.json_types import StateFile
from loomlog.services.application.transfer.restored import SPOOL_BYTES, restored_json, spool_document
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput, NoOutput
from loomlog.services.core.times import parse_time_ms


class StateFileHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.CREATE: self.create, api.LIST: self.list, api.DELETE: self.delete, api.RESTORE: self.restore}

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
        return Answer(value={"entries": await self._application.backups.list()})

    async def delete(self, call: Call[api.StateFileNamed]) -> Answer[NoOutput]:
        """Delete a stored state file."""
        await self._application.backups.remove(call.input.snapshot_id)
        return Answer(value=NoOutput())

    async def restore(self, call: Call[api.StateFileRestore]) -> Answer[Restored]:
        """Restore a stored state file, or a document."""
        asked, application = call.input, self._application
        if not asked.snapshot_id and asked.document in (None, ""):
            raise bad_request("expected a snapshot_id, or the content of a state file")
        with ExitStack() as files:
            if asked.snapshot_id:
                _, stored = await application.backups.open(asked.snapshot_id)
                file = files.enter_context(closing(stored))
            if asked.document not in (None, ""):
                file = cast("IO[bytes]", files.enter_context(SpooledTemporaryFile(max_size=SPOOL_BYTES)))
                await asyncio.to_thread(spool_document, _document(asked.document), file)
            result = await application.state_restore.restore(
                call.principal,
                file,
                dry_run=bool(asked.dry_run),
                sealed=bool(asked.sealed),
                in_clear=bool(asked.in_clear),
            )
        answer = restored_json(result, has_unused_field=asked.include_history is not None)
        return Answer(value=answer, positions=tuple(answer["positions"]))


def _document(content: Any) -> Mapping[str, Any]:
    """Return the content of a state file, of JSON or its text. Raises Refused(bad_request)."""
    try:
        document = orjson.loads(content) if isinstance(content, str | bytes) else content
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the document is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise bad_request("the document must be an object")
    return document
