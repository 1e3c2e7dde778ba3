"""State files over HTTP, in the formats of reference surfaces 1.9; fields that we add are additive.

A state may be larger than memory, so its JSON is sent as stored in the file. An export is that JSON, in gzip for
clients that accept it, or the stored file (`format=gzip`).

Before: routes.py. After: services/application/transfer/state_files.py and transfer/restore.py.
"""

import asyncio
from collections.abc import AsyncGenerator
from tempfile import SpooledTemporaryFile
from typing import IO, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from loomlog.services.api.request_parsing import query_flag, query_text, spool_body
from loomlog.services.api.responses import JSON_MEDIA_TYPE, JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.state_files import Restored
from loomlog.services.application.errors import bad_request
from loomlog.services.application.transfer.restored import SPOOL_BYTES, restored_json
from loomlog.services.core.access.decide import Caller
from loomlog.services.stream.archive.state_file import SUFFIX
from loomlog.services.stream.archive.state_reader import decompressed

BODY_MAX = 64 * 1024
CHUNK_BYTES = 64 * 1024
GZIP = "gzip"


async def get_snapshot(service: Service, caller: Caller, request: Request) -> Response:
    manifest, file = await service.application.backups.open(request.path_params["snapshot_id"])
    before = orjson.dumps(manifest).removesuffix(b"}") + b',"json_content":'
    return StreamingResponse(
        _stream_file(file, decompressed(file), before=before, after=b"}"), media_type=JSON_MEDIA_TYPE
    )


async def export_snapshot(service: Service, caller: Caller, request: Request) -> Response:
    export_format = query_text(request, "format")
    if export_format not in ("", "json", GZIP):
        raise bad_request(f"format is {export_format!r}: expected json or {GZIP}")
    manifest, file = await service.application.backups.open(request.path_params["snapshot_id"])
    named = f"{manifest['id']}{SUFFIX if export_format == GZIP else '.json'}"
    headers = {"content-disposition": f'attachment; filename="{named}"', "vary": "accept-encoding"}
    if export_format == GZIP:
        return StreamingResponse(_stream_file(file, file), media_type="application/gzip", headers=headers)
    if _accepts_gzip(request):
        headers["content-encoding"] = GZIP
        return StreamingResponse(_stream_file(file, file), media_type=JSON_MEDIA_TYPE, headers=headers)
    return StreamingResponse(_stream_file(file, decompressed(file)), media_type=JSON_MEDIA_TYPE, headers=headers)


async def restore_snapshot_file(service: Service, caller: Caller, request: Request) -> JsonResponse[Restored]:
    """Restore the state file that is the request body."""
    restoring = service.application.state_restore
    with SpooledTemporaryFile(max_size=SPOOL_BYTES) as file:
        await spool_body(request, cast("IO[bytes]", file), limit=limits.STATE_FILE_BYTES_MAX)
        how = {name: query_flag(request, name) for name in ("dry_run", "sealed", "in_clear")}
        result = await restoring.restore(caller, cast("IO[bytes]", file), **how)
    answer = restored_json(result, has_unused_field=False)
    return json_response(answer, headers=position_headers(*answer["positions"]))


def _accepts_gzip(request: Request) -> bool:
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in (GZIP, "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def _stream_file(
    file: IO[bytes], content: IO[bytes], *, before: bytes = b"", after: bytes = b""
) -> AsyncGenerator[bytes, None]:
    """Yield the content in pieces, then close `file`. After a read error the stream ends early, and clients notice
    that.
    """
    try:
        if before:
            yield before
        while piece := await asyncio.to_thread(content.read, CHUNK_BYTES):
            yield piece
        if after:
            yield after
    finally:
        file.close()
