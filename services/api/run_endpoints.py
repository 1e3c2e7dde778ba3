"""Streams of runs over HTTP: start, continue, follow. Formats as in reference surfaces 1.1 to 1.3.

Every endpoint takes the service, the caller and the request, and returns a response; a Refused that it raises
becomes the one error format (app.py). Endpoints make no decisions.
"""

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import (
    json_body,
    query_flag,
    query_text,
    resume_after,
)
from loomlog.services.api.responses import POSITION_HEADER
from loomlog.services.api.service import Service
from loomlog.services.application.bodies.models import (
    MessageBody,
    RunBody,
    to_run_request,
)
from loomlog.services.application.queries.run_filters import check_agent, parse_statuses
from loomlog.services.application.runs.requests import check_user_id
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.core.access.decide import Caller

AsgiResponse = Response | ASGIApp


async def start_run(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    began = time.perf_counter()
    body = await json_body(request, RunBody, limit=service.max_request_bytes)
    accepted = await service.application.runs.start(
        caller,
        to_run_request(
            body, idempotency_key=_idempotency_key(request), traceparent=request.headers.get("traceparent", "")
        ),
    )
    service.metrics.start_seconds.observe(time.perf_counter() - began)
    return stream_response(request, accepted)


async def continue_session(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    began = time.perf_counter()
    body = await json_body(request, MessageBody, limit=service.max_request_bytes)
    accepted = await service.application.runs.continue_session(
        caller,
        request.path_params["session_id"],
        to_run_request(
            body, idempotency_key=_idempotency_key(request), traceparent=request.headers.get("traceparent", "")
        ),
    )
    service.metrics.start_seconds.observe(time.perf_counter() - began)
    return stream_response(request, accepted)


async def stream_run(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    run_id, after = request.path_params["run_id"], resume_after(request)
    return EventStream(await service.application.queries.stream(caller, run_id, after=after), with_ids=True)


async def watch_user_runs(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    return _state_stream(service, caller, request, user_id=request.path_params["user_id"], with_waits=False)


async def watch_runs(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    return _state_stream(service, caller, request, user_id=query_text(request, "user_id"), with_waits=True)


def _state_stream(
    service: Service, caller: Caller, request: Request, *, user_id: str, with_waits: bool
) -> AsgiResponse:
    check_user_id(user_id)
    state_filter = StateFilter(
        user_id=user_id,
        statuses=parse_statuses(query_text(request, "status")),
        agent=check_agent(query_text(request, "agent")),
        tenant=query_text(request, "tenant"),
        with_waits=with_waits,
    )
    return EventStream(service.application.run_states.follow(caller, state_filter), with_ids=False)


# --- shared ----------------------------------------------------------------------------------------------------------


def stream_response(request: Request, accepted: StartedRun) -> EventStream:
    headers = {POSITION_HEADER: accepted.position}
    if accepted.is_repeated:
        headers["idempotent-replayed"] = "true"
    return EventStream(accepted.stream, with_ids=query_flag(request, "ids"), headers=headers)


def _idempotency_key(request: Request) -> str:
    return request.headers.get("idempotency-key", "").strip()
