"""Runs as their events tell them, over HTTP: the state at an event, replay, comparison, fork, export, import.

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
from loomlog.services.api.request_models import ForkBody, fork_request
from loomlog.services.api.request_parsing import flag, integer, json_body, spool_body, text
from loomlog.services.api.responses import POSITION_HEADER, json_response
from loomlog.services.api.run_endpoints import position_of, run_stream
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.errors import RequestRefused, bad_request
from loomlog.services.application.queries.history_json import comparison_json, moment_json, proof_json
from loomlog.services.core.access.decide import Caller
from loomlog.services.stream.archive.bundle import SUFFIX

log = logging.getLogger(__name__)

Answer = Response | ASGIApp
SEQ_MAX = 10**12
BUNDLE_TYPE = "application/gzip"
SPOOL_BYTES = 8 * 1024 * 1024
"""Of an import that are kept in memory; more go to a temporary file."""
PIECE_BYTES = 64 * 1024
"""Pieces of a bundle that are gathered before they are sent; most lines compress to a few bytes."""


async def state_at(service: Service, caller: Caller, request: Request) -> Response:
    moment = await service.layer.histories.at(caller, request.path_params["run_id"], _seq(request, "at"))
    return json_response(moment_json(moment))


async def replay(service: Service, caller: Caller, request: Request) -> Response:
    """Drift is an answer, not an error: it is what was asked."""
    run_id = request.path_params["run_id"]
    return json_response(proof_json(await service.layer.histories.replay(caller, run_id, to_seq=_seq(request, "to"))))


async def diff(service: Service, caller: Caller, request: Request) -> Response:
    other = text(request, "with")
    if not other:
        raise bad_request("with is required: the run to compare with")
    two = await service.layer.histories.compare(
        caller,
        request.path_params["run_id"],
        other,
        a_seq=_seq(request, "at"),
        b_seq=_seq(request, "with_at"),
    )
    return json_response(comparison_json(two))


async def fork(service: Service, caller: Caller, request: Request) -> Answer:
    body = await json_body(request, ForkBody, limit=service.max_request_bytes)
    await service.layer.budgets.wait_for(position_of(request))
    accepted = await service.layer.forks.fork(
        caller,
        request.path_params["run_id"],
        fork_request(
            body,
            idempotency_key=request.headers.get("idempotency-key", "").strip(),
            traceparent=request.headers.get("traceparent", ""),
        ),
    )
    return run_stream(service, request, accepted)


async def export(service: Service, caller: Caller, request: Request) -> Response:
    run_id = request.path_params["run_id"]
    pieces = await service.layer.histories.export(caller, run_id)
    return StreamingResponse(
        _buffer_bundle(run_id, pieces),
        media_type=BUNDLE_TYPE,
        headers={"content-disposition": f'attachment; filename="{run_id}{SUFFIX}"'},
    )


async def import_run(service: Service, caller: Caller, request: Request) -> Response:
    """The body is the file itself."""
    imports = service.layer.imports
    with SpooledTemporaryFile(max_size=SPOOL_BYTES) as file:
        await spool_body(request, cast("IO[bytes]", file), limit=limits.IMPORT_FILE_BYTES_MAX)
        found = await imports.import_bundle(caller, cast("IO[bytes]", file), in_clear=flag(request, "in_clear"))
    runs = [{"run_id": run.run_id, "imported": run.added} for run in found.runs]
    answer = {"run_id": runs[-1]["run_id"], "imported": runs[-1]["imported"], "runs": runs}
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def _buffer_bundle(run_id: str, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The bundle in larger pieces. When it cannot go on, the connection breaks: nobody shall take it for whole."""
    held = bytearray()
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                held += piece
                if len(held) >= PIECE_BYTES:
                    yield bytes(held)
                    held.clear()
    except (RequestRefused, ConnectorError) as error:
        log.error("the export of %s was cut short: %s", run_id, error.__cause__ or error)
        raise
    yield bytes(held)


def _seq(request: Request, name: str) -> int:
    return integer(request, name, 0, least=1, most=SEQ_MAX)
