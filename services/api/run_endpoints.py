"""Runs over HTTP: start, follow, list, steer, pause, cancel. Formats as in reference surfaces 1.1 to 1.3.

Every endpoint takes the service, the caller and the request, and returns a response; a Refused that it raises
becomes the one error format (app.py). Endpoints make no decisions.
"""

import re
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from loomlog.projections.run_queries import COUNT_MAX, WAITS, RunFilter
from loomlog.schemas.records import replace
from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import (
    CONTROL_BODY_MAX,
    json_body,
    query_flag,
    query_integer,
    query_text,
    resume_after,
)
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import (
    AgentList,
    CallResolved,
    Cancelled,
    Compacted,
    InputAcknowledged,
    Pausing,
    Quarantined,
    Released,
    Resumed,
    RunCountsView,
    RunList,
    SessionCopied,
    Transcript,
)
from loomlog.services.application.bodies.models import (
    CancelRunBody,
    InputBody,
    MessageBody,
    ReasonBody,
    ReplayBody,
    ResolveBody,
    RunBody,
    to_run_request,
)
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.json_types import Run
from loomlog.services.application.queries.run_json import run_json, session_json, transcript_json
from loomlog.services.application.runs.compactions import NOOP
from loomlog.services.application.runs.requests import check_id, check_user_id
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.run.limits import AGENT_NAME
from loomlog.services.core.times import parse_time_ms

AsgiResponse = Response | ASGIApp
CALL_PATTERN = re.compile(r"([1-9][0-9]{0,6})\.([0-9]{1,3})")
"""A tool call as TURN.INDEX."""
RUN_STATUSES = ("running", "completed", "failed", "cancelled")


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


async def list_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[RunList]:
    page = await service.application.queries.runs(
        caller,
        replace(_parse_filter(request), waiting=_parse_waiting(request)),
        tenant=query_text(request, "tenant"),
        limit=query_integer(request, "limit", limits.LIST_DEFAULT, minimum=1, maximum=limits.LIST_MAX),
        after=query_text(request, "cursor", max_length=1_024),
    )
    return json_response(
        {"runs": [run_json(row, service.application.barrier.topic) for row in page.rows], "next": page.next or None}
    )


async def count_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[RunCountsView]:
    counts = await service.application.queries.count_runs(
        caller, _parse_filter(request), tenant=query_text(request, "tenant")
    )
    answer: RunCountsView = {
        "running": counts.running,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "waiting": {
            "awaiting_input": counts.parked,
            "interrupted": counts.interrupted,
            "pause_requested": counts.pause_requested,
            "quarantined": counts.quarantined,
        },
        "is_exact": counts.is_exact,
        "is_live_exact": counts.is_live_exact,
        "counted_max": COUNT_MAX,
    }
    return json_response(answer)


async def list_user_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[AgentList]:
    """List a user's runs; only live ones unless a status is requested, as existing clients expect."""
    user_id = request.path_params["user_id"]
    check_user_id(user_id)
    statuses = parse_statuses(query_text(request, "status") or "running")
    page = await service.application.queries.runs(
        caller,
        RunFilter(user_id=user_id, statuses=statuses),
        tenant=query_text(request, "tenant"),
        limit=query_integer(request, "limit", limits.LIST_MAX, minimum=1, maximum=limits.LIST_MAX),
        after=query_text(request, "cursor", max_length=1_024),
    )
    return json_response(
        {"agents": [run_json(row, service.application.barrier.topic) for row in page.rows], "next": page.next or None}
    )


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
        statuses=parse_statuses(query_text(request, "status") or "all"),
        agent=_parse_agent(request),
        tenant=query_text(request, "tenant"),
        with_waits=with_waits,
    )
    return EventStream(service.application.run_states.follow(caller, state_filter), with_ids=False)


async def get_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Run]:
    row = await service.application.queries.run(caller, request.path_params["run_id"])
    return json_response(run_json(row, service.application.barrier.topic))


async def get_agent(service: Service, caller: Caller, request: Request) -> JsonResponse[Run]:
    row = await service.application.queries.agent(caller, request.path_params["agent_id"])
    return json_response(run_json(row, service.application.barrier.topic))


async def get_transcript(service: Service, caller: Caller, request: Request) -> JsonResponse[Transcript]:
    transcript = await service.application.queries.transcript(
        caller,
        request.path_params["session_id"],
        limit=query_integer(request, "limit", limits.TRANSCRIPT_MAX, minimum=1, maximum=limits.TRANSCRIPT_MAX),
        after=query_text(request, "cursor", max_length=1_024),
    )
    return json_response(
        {
            "session": session_json(transcript.session_id, transcript.newest),
            "events": transcript_json(transcript.rows, transcript.runs_before),
            "next": transcript.next or None,
        }
    )


async def post_input(service: Service, caller: Caller, request: Request) -> JsonResponse[InputAcknowledged]:
    body = await json_body(request, InputBody, limit=CONTROL_BODY_MAX)
    result = await service.application.control.post_input(
        caller, request.path_params["run_id"], body.text, source=body.source or "api"
    )
    return json_response({"run_id": result.run_id, "delivered": True}, headers={POSITION_HEADER: result.position})


async def resolve_call(service: Service, caller: Caller, request: Request) -> JsonResponse[CallResolved]:
    body = await json_body(request, ResolveBody, limit=CONTROL_BODY_MAX)
    call = request.path_params["call"]
    place = CALL_PATTERN.fullmatch(call)
    if place is None:
        raise bad_request(f"call is {call[:40]!r}: expected TURN.INDEX, such as 1.0")
    result = await service.application.control.resolve(
        caller,
        request.path_params["run_id"],
        int(place[1]),
        int(place[2]),
        done=body.outcome == "done",
        result=body.result or "",
    )
    answer: CallResolved = {"run_id": result.run_id, "call": call, "repeated": result.is_repeated}
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def cancel_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Cancelled]:
    body = await json_body(request, CancelRunBody, limit=CONTROL_BODY_MAX, optional=True)
    result = await service.application.control.cancel(
        caller, request.path_params["agent_id"], body.reason or "", run_id=body.run_id or ""
    )
    answer: Cancelled = {
        "cancelled": result.cancelled,
        "agent_id": result.agent_id,
        "run_id": result.run_id,
        "cascaded": list(result.cascaded),
        "status": result.status,
        "reason": result.reason,
    }
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def pause_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Pausing]:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.application.control.pause(caller, request.path_params["run_id"], body.reason or "")
    answer: Pausing = {"run_id": held.run_id, "agent_id": held.agent_id, "pausing": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def resume_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Resumed]:
    held = await service.application.control.resume(caller, request.path_params["run_id"])
    answer: Resumed = {"run_id": held.run_id, "agent_id": held.agent_id, "resumed": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def compact_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Compacted]:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    result = await service.application.compactions.compact(caller, request.path_params["run_id"], body.reason or "")
    answer: Compacted = {
        "run_id": result.run_id,
        "compacted": result.applied != NOOP,
        "before_tokens": result.before_tokens,
        "after_tokens": result.after_tokens,
        "applied": result.applied,
    }
    return json_response(answer, headers={POSITION_HEADER: result.position} if result.position else None)


async def copy_session(service: Service, caller: Caller, request: Request) -> JsonResponse[SessionCopied]:
    body = await json_body(request, ReplayBody, limit=CONTROL_BODY_MAX)
    result = await service.application.compactions.replay(
        caller, request.path_params["session_id"], body.agent, compress=bool(body.compress)
    )
    answer: SessionCopied = {
        "new_session_id": result.session_id,
        "seed_run_id": result.seed_run_id,
        "events_copied": result.events,
        "compacted": result.compacted,
    }
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def quarantine_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Quarantined]:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.application.control.quarantine(caller, request.path_params["run_id"], body.reason or "")
    answer: Quarantined = {"run_id": held.run_id, "agent_id": held.agent_id, "quarantined": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


async def release_run(service: Service, caller: Caller, request: Request) -> JsonResponse[Released]:
    body = await json_body(request, ReasonBody, limit=CONTROL_BODY_MAX, optional=True)
    held = await service.application.control.release(caller, request.path_params["run_id"], body.reason or "")
    answer: Released = {"run_id": held.run_id, "agent_id": held.agent_id, "released": True}
    return json_response(answer, headers={POSITION_HEADER: held.position})


# --- shared ----------------------------------------------------------------------------------------------------------


def stream_response(request: Request, accepted: StartedRun) -> EventStream:
    headers = {POSITION_HEADER: accepted.position}
    if accepted.is_repeated:
        headers["idempotent-replayed"] = "true"
    return EventStream(accepted.stream, with_ids=query_flag(request, "ids"), headers=headers)


def _idempotency_key(request: Request) -> str:
    return request.headers.get("idempotency-key", "").strip()


def _parse_filter(request: Request) -> RunFilter:
    since, until = query_text(request, "from"), query_text(request, "to")
    agent = _parse_agent(request)
    user_id = query_text(request, "user_id")
    check_user_id(user_id)
    return RunFilter(
        statuses=parse_statuses(query_text(request, "status") or "all"),
        agent=agent,
        agent_id=_parse_id(request, "agent_id"),
        parent_agent_id=_parse_id(request, "parent_agent_id"),
        user_id=user_id,
        session_id=_parse_id(request, "session_id"),
        root_run_id=_parse_id(request, "root_run_id"),
        def_id=_parse_id(request, "def_id"),
        forked_from=_parse_id(request, "forked_from"),
        forked_from_root=_parse_id(request, "forked_from_root"),
        id_part=_parse_id_part(query_text(request, "id_part")),
        id_prefix=_parse_id(request, "prefix"),
        since_ms=parse_time_ms("from", since) if since else 0,
        until_ms=parse_time_ms("to", until) if until else 0,
    )


def _parse_waiting(request: Request) -> str:
    waiting = query_text(request, "waiting")
    if waiting and waiting not in WAITS:
        raise bad_request(f"waiting is {waiting[:60]!r}: expected one of {', '.join(WAITS)}")
    return waiting


def _parse_agent(request: Request) -> str:
    agent = query_text(request, "agent")
    if agent and not AGENT_NAME.match(agent):
        raise bad_request("agent: expected the name of an agent")
    return agent


def parse_statuses(value: str) -> frozenset[str]:
    """Parse `all`, or some of the four statuses separated by commas."""
    if value == "all":
        return frozenset()
    statuses = frozenset(part.strip() for part in value.split(","))
    if not statuses <= set(RUN_STATUSES):
        raise bad_request(
            f"status is {value!r}: expected all, or some of {', '.join(RUN_STATUSES)} with commas between"
        )
    return statuses


def _parse_id(request: Request, name: str) -> str:
    value = query_text(request, name)
    if value:
        check_id(name, value)
    return value


def _parse_id_part(text: str) -> str:
    """Return what an id begins or ends with. People type and paste it: what can be in no id finds nothing."""
    part = text.strip().strip("…")
    if len(part) > limits.NAME_BYTES_MAX:
        raise bad_request(f"id_part: expected at most {limits.NAME_BYTES_MAX} characters, these are {len(part)}")
    return part
