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
from loomlog.services.api.request_parsing import json_body, query_flag, query_integer, query_text, spool_body
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.run_endpoints import stream_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import Imported, ImportedRun
from loomlog.services.application.bodies.models import ForkBody, to_fork_request
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.history_json import comparison_json, proof_json, run_at_json
from loomlog.services.application.queries.json_types import RunComparison, RunReplay, RunStateAt
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


async def get_run_state(service: Service, caller: Caller, request: Request) -> JsonResponse[RunStateAt]:
    moment = await service.application.histories.state_at(
        caller, request.path_params["run_id"], _parse_seq(request, "at")
    )
    return json_response(run_at_json(moment))


async def replay_run(service: Service, caller: Caller, request: Request) -> JsonResponse[RunReplay]:
    """Replay a run. Drift is a result, not an error: finding it is the purpose of the request."""
    run_id = request.path_params["run_id"]
    return json_response(
        proof_json(await service.application.histories.replay(caller, run_id, to_seq=_parse_seq(request, "to")))
    )


async def compare_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[RunComparison]:
    other = query_text(request, "with")
    if not other:
        raise bad_request("with is required: the run to compare with")
    two = await service.application.histories.compare(
        caller,
        request.path_params["run_id"],
        other,
        a_seq=_parse_seq(request, "at"),
        b_seq=_parse_seq(request, "with_at"),
    )
    return json_response(comparison_json(two))


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


def _parse_seq(request: Request, name: str) -> int:
    return query_integer(request, name, 0, minimum=1, maximum=SEQ_MAX)
