"""Event history of runs over HTTP: the state at an event, replay, comparison, fork, export, import.

Before: routes.py. After: services/application/queries/run_history.py, forks.py and imports.py.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process.logs import about
from loomlog.services.api.request_parsing import json_body, query_flag, spool_body
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.run_endpoints import stream_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import Imported, ImportedRun
from loomlog.services.application.bodies.models import ForkBody, to_fork_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.bundle import SUFFIX

log = logging.getLogger(__name__)

AsgiResponse = Response | ASGIApp
SEQ_MAX = 10**12
BUNDLE_TYPE = "application/gzip"
SPOOL_BYTES = 8 * 1024 * 1024
"""Maximum bytes of an import kept in memory; more go to a temporary file."""
CHUNK_BYTES = 64 * 1024
"""Bytes of a bundle that are collected before they are sent; most lines compress to a few bytes."""


async def fork_run(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    body = await json_body(request, ForkBody, limit=service.max_request_bytes)
    accepted = await service.application.forks.fork(
        caller,
        request.path_params["run_id"],
        to_fork_request(
            body,
            idempotency_key=request.headers.get("idempotency-key", "").strip(),
            traceparent=request.headers.get("traceparent", ""),
        ),
    )
    return stream_response(request, accepted)


async def export_run(service: Service, caller: Caller, request: Request) -> Response:
    run_id = request.path_params["run_id"]
    pieces = await service.application.histories.export(caller, run_id)
    return StreamingResponse(
        _buffer_bundle(run_id, pieces),
        media_type=BUNDLE_TYPE,
        headers={"content-disposition": f'attachment; filename="{run_id}{SUFFIX}"'},
    )


async def import_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Imported]:
    """Import the bundle that is the request body."""
    imports = service.application.imports
    with SpooledTemporaryFile(max_size=SPOOL_BYTES) as file:
        await spool_body(request, cast("IO[bytes]", file), limit=limits.IMPORT_FILE_BYTES_MAX)
        result = await imports.import_bundle(caller, cast("IO[bytes]", file), in_clear=query_flag(request, "in_clear"))
    runs: list[ImportedRun] = [{"run_id": run.run_id, "imported": run.added} for run in result.runs]
    answer: Imported = {"run_id": runs[-1]["run_id"], "imported": runs[-1]["imported"], "runs": runs}
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def _buffer_bundle(run_id: str, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the bundle in larger pieces. On an error the connection breaks, so that a partial bundle is not taken for
    complete.
    """
    held = bytearray()
    try:
        async with aclosing(chunks):
            async for piece in chunks:
                held += piece
                if len(held) >= CHUNK_BYTES:
                    yield bytes(held)
                    held.clear()
    except (Refused, ConnectorError) as error:
        log.error("the export of %s was cut short: %s", run_id, error.__cause__ or error, extra=about(run_id))
        raise
    yield bytes(held)
