"""Runs over HTTP: start, follow, list, steer, pause, cancel. Shapes as in reference surfaces 1.1 to 1.3.

Every endpoint takes the service, the caller and the request, and gives an answer; what it raises as Declined becomes
the one error shape (app.py). They decide nothing.
"""

import re
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from loomlog.projections.run_queries import RunFilter
from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_models import (
    CancelRunBody,
    InputBody,
    MessageBody,
    ReasonBody,
    ReplayBody,
    ResolveBody,
    RunBody,
    run_request,
)
from loomlog.services.api.request_parsing import flag, integer, json_body, place_in_stream, text, time_ms
from loomlog.services.api.responses import POSITION_HEADER, json_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.run_json import frame_json, run_json, session_json
from loomlog.services.application.runs.compactions import NOOP
from loomlog.services.application.runs.requests import AGENT_NAME, check_id
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.core.access.decide import Caller

Answer = Response | ASGIApp
CONTROL_BODY_MAX = 1024 * 1024
"""Inputs and cancels (parity: reference runtime 1.12)."""
CALL = re.compile(r"([1-9][0-9]{0,6})\.([0-9]{1,3})")
"""TURN.INDEX of a tool call."""
STATUSES = ("running", "completed", "failed", "cancelled")


async def start(service: Service, caller: Caller, request: Request) -> Answer:
    began = time.perf_counter()
    body = await json_body(request, RunBody, limit=service.max_request_bytes)
    await service.layer.budgets.wait_for(position_of(request))
    accepted = await service.layer.runs.start(
        caller, run_request(body, idempotency_key=_key(request), traceparent=request.headers.get("traceparent", ""))
    )
    service.metrics.start_seconds.observe(time.perf_counter() - began)
    return run_stream(service, request, accepted)


async def continue_session(service: Service, caller: Caller, request: Request) -> Answer:
    began = time.perf_counter()
    body = await json_body(request, MessageBody, limit=service.max_request_bytes)
    await service.layer.budgets.wait_for(position_of(request))
    accepted = await service.layer.runs.continue_session(
        caller,
        request.path_params["session_id"],
        run_request(body, idempotency_key=_key(request), traceparent=request.headers.get("traceparent", "")),
    )
    service.metrics.start_seconds.observe(time.perf_counter() - began)
    return run_stream(service, request, accepted)


async def follow(service: Service, caller: Caller, request: Request) -> Answer:
    layer = service.layer
    service.take_stream()
    try:
        stream = await layer.reads.stream(
            caller, request.path_params["run_id"], after=place_in_stream(request), position=position_of(request)
        )
    except BaseException:
        service.give_stream()
        raise
    return EventStream(stream, with_ids=True, closed=service.give_stream)


async def list_runs(service: Service, caller: Caller, request: Request) -> Response:
    page = await service.layer.reads.runs(
        caller,
        _filter(request),
        tenant=text(request, "tenant"),
        limit=integer(request, "limit", limits.LIST_DEFAULT, least=1, most=limits.LIST_MAX),
        after=text(request, "cursor", longest=1_024),
    )
    return json_response({"runs": [run_json(row) for row in page.rows], "next": page.next or None})


async def list_user_runs(service: Service, caller: Caller, request: Request) -> Response:
    """Only live ones unless a status is asked for, as existing clients expect."""
    user_id = request.path_params["user_id"]
    statuses = _statuses(text(request, "status") or "running")
    page = await service.layer.reads.runs(
        caller,
        RunFilter(user_id=user_name("user_id", user_id), statuses=statuses),
        tenant=text(request, "tenant"),
        limit=integer(request, "limit", limits.LIST_MAX, least=1, most=limits.LIST_MAX),
        after=text(request, "cursor", longest=1_024),
    )
    return json_response({"agents": [run_json(row) for row in page.rows], "next": page.next or None})


async def watch_user_runs(service: Service, caller: Caller, request: Request) -> Answer:
    state_filter = StateFilter(
        user_id=user_name("user_id", request.path_params["user_id"]),
        statuses=_statuses(text(request, "status") or "all"),
        agent=_agent(request),
        tenant=text(request, "tenant"),
    )
    service.take_stream()
    try:
        stream = service.layer.run_states.follow(caller, state_filter)
    except BaseException:
        service.give_stream()
        raise
    return EventStream(stream, with_ids=False, closed=service.give_stream)


async def get_run(service: Service, caller: Caller, request: Request) -> Response:
    row = await service.layer.reads.run(caller, request.path_params["run_id"], position=position_of(request))
    return json_response(run_json(row))


async def get_agent(service: Service, caller: Caller, request: Request) -> Response:
    row = await service.layer.reads.agent(caller, request.path_params["agent_id"], position=position_of(request))
    return json_response(run_json(row))


async def get_transcript(service: Service, caller: Caller, request: Request) -> Response:
    transcript = await service.layer.reads.transcript(
        caller,
        request.path_params["session_id"],
        position=position_of(request),
        limit=integer(request, "limit", limits.TRANSCRIPT_MAX, least=1, most=limits.TRANSCRIPT_MAX),
        after=text(request, "cursor", longest=1_024),
    )
    return json_response(
        {
            "session": session_json(transcript.session_id, transcript.newest),
            "events": [frame_json(row) for row in transcript.rows],
            "next": transcript.next or None,
        }
    )


async def post_input(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, InputBody, limit=CONTROL_BODY_MAX)
    found = await service.layer.control.post_input(
        caller, request.path_params["run_id"], body.text, source=body.source or "api"
    )
    return json_response({"run_id": found.run_id, "delivered": True}, headers={POSITION_HEADER: found.position})


async def resolve_call(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ResolveBody, limit=CONTROL_BODY_MAX)
    call = request.path_params["call"]
    place = CALL.fullmatch(call)
    if place is None:
        raise bad_request(f"call is {call[:40]!r}: expected TURN.INDEX, such as 1.0")
    found = await service.layer.control.resolve(
        caller,
        request.path_params["run_id"],
        int(place[1]),
        int(place[2]),
        done=body.outcome == "done",
        result=body.result or "",
    )
    answer = {"run_id": found.run_id, "call": call, "repeated": found.is_repeated}
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def cancel(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, CancelRunBody, limit=CONTROL_BODY_MAX, optional=True)
    found = await service.layer.control.cancel(
        caller, request.path_params["agent_id"], body.reason or "", run_id=body.run_id or ""
    )
    answer = {
        "cancelled": found.cancelled,
        "agent_id": found.agent_id,
        "run_id": found.run_id,
        "cascaded": list(found.cascaded),
        "status": found.status,
        "reason": found.reason,
    }
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def pause(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.layer.control.pause(caller, request.path_params["run_id"], body.reason or "")
    answer = {"run_id": held.run_id, "agent_id": held.agent_id, "pausing": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def resume(service: Service, caller: Caller, request: Request) -> Response:
    held = await service.layer.control.resume(caller, request.path_params["run_id"])
    answer = {"run_id": held.run_id, "agent_id": held.agent_id, "resumed": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def compact(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    found = await service.layer.compactions.compact(caller, request.path_params["run_id"], body.reason or "")
    answer = {
        "run_id": found.run_id,
        "compacted": found.applied != NOOP,
        "before_tokens": found.before_tokens,
        "after_tokens": found.after_tokens,
        "applied": found.applied,
    }
    return json_response(answer, headers={POSITION_HEADER: found.position} if found.position else None)


async def replay_session(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ReplayBody, limit=CONTROL_BODY_MAX)
    found = await service.layer.compactions.replay(
        caller, request.path_params["session_id"], body.agent, compress=bool(body.compress)
    )
    answer = {
        "new_session_id": found.session_id,
        "seed_run_id": found.seed_run_id,
        "events_copied": found.events,
        "compacted": found.compacted,
    }
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def quarantine(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.layer.control.quarantine(caller, request.path_params["run_id"], body.reason or "")
    answer = {"run_id": held.run_id, "agent_id": held.agent_id, "quarantined": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def release(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.layer.control.release(caller, request.path_params["run_id"], body.reason or "")
    answer = {"run_id": held.run_id, "agent_id": held.agent_id, "released": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


# --- shared ----------------------------------------------------------------------------------------------------------


def run_stream(service: Service, request: Request, accepted: StartedRun) -> EventStream:
    headers = {POSITION_HEADER: accepted.position}
    if accepted.repeated:
        headers["idempotent-replayed"] = "true"
    try:
        service.take_stream()
    except BaseException:
        accepted.stream.close()
        raise
    return EventStream(accepted.stream, with_ids=flag(request, "ids"), headers=headers, closed=service.give_stream)


def _key(request: Request) -> str:
    return request.headers.get("idempotency-key", "").strip()


def position_of(request: Request) -> str:
    """Of an earlier write: a read sees it, and a run that is started is under the limit it is of."""
    return request.headers.get(POSITION_HEADER, "").strip() or request.query_params.get("position", "").strip()


def _filter(request: Request) -> RunFilter:
    since, until = text(request, "from"), text(request, "to")
    agent = _agent(request)
    return RunFilter(
        statuses=_statuses(text(request, "status") or "all"),
        agent=agent,
        agent_id=_id(request, "agent_id"),
        parent_agent_id=_id(request, "parent_agent_id"),
        user_id=user_name("user_id", text(request, "user_id")),
        session_id=_id(request, "session_id"),
        root_run_id=_id(request, "root_run_id"),
        since_ms=time_ms("from", since) if since else 0,
        until_ms=time_ms("to", until) if until else 0,
    )


def _agent(request: Request) -> str:
    agent = text(request, "agent")
    if agent and not AGENT_NAME.match(agent):
        raise bad_request("agent: expected the name of an agent")
    return agent


def _statuses(value: str) -> frozenset[str]:
    """`all`, or some of the four with commas between."""
    if value == "all":
        return frozenset()
    found = frozenset(part.strip() for part in value.split(","))
    if not found <= set(STATUSES):
        raise bad_request(f"status is {value!r}: expected all, or some of {', '.join(STATUSES)} with commas between")
    return found


def _id(request: Request, name: str) -> str:
    value = text(request, name)
    if value:
        check_id(name, value)
    return value


def user_name(name: str, value: str) -> str:
    """A user: an id, or a subject of a token, which may hold more characters."""
    if len(value) > limits.NAME_BYTES_MAX or not value.isprintable():
        raise bad_request(f"{name}: expected at most {limits.NAME_BYTES_MAX} printable characters")
    return value
