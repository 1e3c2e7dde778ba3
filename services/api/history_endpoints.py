"""Runs as their events tell them, over HTTP: the state at an event, replay, comparison, fork, export.

Before: routes.py. After: services/commands/histories.py and forks.py.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from connectors.errors import OutsideError
from services.api.answers import json_answer
from services.api.bodies import ForkBody, fork_request
from services.api.reading import json_body, text, whole
from services.api.run_endpoints import run_stream
from services.api.service import Service
from services.commands.declined import Declined, bad_request
from services.commands.history_shapes import comparison_json, moment_json, proof_json
from services.core.access.decide import Caller
from services.stream.bundle import SUFFIX

log = logging.getLogger(__name__)

Answer = Response | ASGIApp
SEQ_MAX = 10**12
BUNDLE_TYPE = "application/gzip"
PIECE_BYTES = 64 * 1024
"""Pieces of a bundle that are gathered before they are sent; most lines compress to a few bytes."""


async def state_at(service: Service, caller: Caller, request: Request) -> Response:
    moment = await service.layer.histories.at(caller, request.path_params["run_id"], _seq(request, "at"))
    return json_answer(moment_json(moment))


async def replay(service: Service, caller: Caller, request: Request) -> Response:
    """Drift is an answer, not an error: it is what was asked."""
    run_id = request.path_params["run_id"]
    return json_answer(proof_json(await service.layer.histories.replay(caller, run_id, to_seq=_seq(request, "to"))))


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
    return json_answer(comparison_json(two))


async def fork(service: Service, caller: Caller, request: Request) -> Answer:
    body = await json_body(request, ForkBody, limit=service.max_request_bytes)
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
        _gathered(run_id, pieces),
        media_type=BUNDLE_TYPE,
        headers={"content-disposition": f'attachment; filename="{run_id}{SUFFIX}"'},
    )


async def _gathered(run_id: str, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The bundle in larger pieces. When it cannot go on it ends without its last line, and readers see that."""
    held = bytearray()
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                held += piece
                if len(held) >= PIECE_BYTES:
                    yield bytes(held)
                    held.clear()
    except (Declined, OutsideError) as error:
        log.error("the export of %s was cut short: %s", run_id, error)
    yield bytes(held)


def _seq(request: Request, name: str) -> int:
    return whole(request, name, 0, least=1, most=SEQ_MAX)
