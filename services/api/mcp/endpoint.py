"""MCP over HTTP: one message a POST to /v1/_mcp.

    a session that is dead, or another's     404 with -32001: the client begins another one
    a notification                           202; only notifications/cancelled does something: it cancels a run
    an answer to a question of a run         202, and the run goes on with it
    spawn_run whose client wants to hear     server-sent events, the answer last; otherwise JSON

A call with an id of a session that was sent before is the same call, and one with an Idempotency-Key in whatever
session: its commands carry the same ids. So a thin client repeats a message after a broken connection, and nothing is
done twice.

Before: routes.py. After: server.py.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from loomlog.connectors.process.logs import log_fields
from loomlog.schemas.ids import hashed_token
from loomlog.services.api.client_endpoints import is_local_origin
from loomlog.services.api.mcp.calls import CallUnderWay, Send, current_call, progress_token, send_nothing
from loomlog.services.api.mcp.events import list_events, poll_events, stream_events, subscribe, unsubscribe
from loomlog.services.api.mcp.message_stream import Messages, MessageStream, call_messages
from loomlog.services.api.mcp.messages import (
    HTTP_STATUS,
    INVALID_REQUEST,
    NOT_PERMITTED,
    PARSE_ERROR,
    STATELESS_REVISIONS,
    Message,
    RequestId,
    RpcError,
    check_stateless,
    error_message,
    parse_message,
    require_revision,
    result_message,
)
from loomlog.services.api.mcp.operations import SPAWN_RUN
from loomlog.services.api.mcp.questions import parse_request_id, response_of
from loomlog.services.api.mcp.server import RUN_EVENTS, mcp_server, unknown_method
from loomlog.services.api.mcp.sessions import Session
from loomlog.services.api.request_parsing import BodyTooLarge, drain, parse_off_loop, raw_body
from loomlog.services.api.responses import JSON_MEDIA_TYPE
from loomlog.services.api.service import Service
from loomlog.services.application.authentication import require_access
from loomlog.services.application.operations.interrupts import RESOLVE
from loomlog.services.application.request_context import current_request
from loomlog.services.application.runs.run_ids import new_run_names
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import Holder

BODY_MAX = 4 * 1024 * 1024
"""Bytes of a message (parity: reference surfaces 3.1)."""
SESSION_HEADER, REVISION_HEADER = "mcp-session-id", "mcp-protocol-version"
IDEMPOTENCY_KEY = "io.loomlog/idempotencyKey"
CANCELLED = "notifications/cancelled"
LONG_CALL_WAIT_S = 60.0
"""Seconds that a call waits for one of the session's long calls to end."""


async def answer_message(service: Service, caller: Caller, request: Request) -> Response:
    """Answer one message."""
    is_stateless = request.headers.get(REVISION_HEADER, "") in STATELESS_REVISIONS
    message = Message(None, "", {})
    current_request.get().transport = "mcp"
    try:
        _check_origin(service, request)
        message = await parse_off_loop(parse_message, await raw_body(request, limit=BODY_MAX))
        if is_stateless and message.id is not None and message.method:
            check_stateless(message, request.headers)
            return await _stateless(service, caller, message, request)
        if message.id is None and (is_stateless or message.method != CANCELLED):
            return Response(status_code=202)
        return await _in_session(service, caller, message, request)
    except BodyTooLarge as too_large:
        error = RpcError(INVALID_REQUEST, too_large.message)
        response = _json(error_message(error), status=413, headers={"connection": "close"})
        response.background = BackgroundTask(drain, request)
        return response
    except RpcError as error:
        return _error(error, message, is_stateless=is_stateless)


async def end_session(service: Service, caller: Caller, request: Request) -> Response:
    """End a session: its client forgets the id, and there is nothing else that has it."""
    return Response(status_code=204)


def _check_origin(service: Service, request: Request) -> None:
    """Refuse pages of other sites. Raises RpcError."""
    origin = request.headers.get("origin")
    host = urlsplit(origin or "").netloc.lower()
    if not origin or is_local_origin(origin) or origin in service.login_origins or host in service.own_hosts:
        return
    text = f"the page {origin[:80]!r} is of another site: expected one of this API"
    raise RpcError(INVALID_REQUEST, text, status=403)


# --- the stateless era -----------------------------------------------------------------------------------------------


async def _stateless(service: Service, caller: Caller, message: Message, request: Request) -> Response:
    server = mcp_server(service.version)
    match message.method:
        case "server/discover":
            return _result(message, server.discover())
        case "tools/list":
            return _result(message, server.list_tools(caller, is_stateless=True))
        case "tasks/get" | "tasks/update" | "tasks/cancel":
            return _result(message, await server.call_task_method(message, caller, service.mcp_requests))
        case "events/list":
            sends = service.application.event_webhooks is not None
            return _result(message, list_events(server, sends=sends))
        case "events/poll":
            return _result(message, await poll_events(server, service.mcp_requests, caller, message))
        case "events/subscribe":
            return _result(message, await subscribe(server, service.mcp_requests, caller, message))
        case "events/unsubscribe":
            return _result(message, await unsubscribe(server, service.mcp_requests, caller, message))
        case "events/stream":
            return await _stream_events(service, caller, message)
        case "tools/call":
            return await _call_stateless(service, caller, message, request)
    raise unknown_method(message)


async def _stream_events(service: Service, caller: Caller, message: Message) -> Response:
    server, requests = mcp_server(service.version), service.mcp_requests
    messages = await stream_events(service.application, requests, caller, message, server)
    slot = service.shares.streams.try_acquire(caller.holder)
    return _message_stream(service, caller, messages, [slot.release])


async def _call_stateless(service: Service, caller: Caller, message: Message, request: Request) -> Response:
    answers, state = message.params.get("inputResponses"), message.params.get("requestState")
    # Each round of answers is a request of its own under the key: another one has other commands.
    _recognise_repetition(caller, message.meta.get(IDEMPOTENCY_KEY), message, answers=answers)
    under_way = CallUnderWay(
        has_run_events=_wants_run_events(message.capabilities),
        progress_token=progress_token(message),
        returns_questions="elicitation" in message.capabilities,
        resumed_run=state if isinstance(state, str) else "",
        answers=answers if isinstance(answers, Mapping) else {},
    )
    return await _call(service, caller, message, request, under_way, is_stateless=True)


# --- sessions --------------------------------------------------------------------------------------------------------


async def _in_session(service: Service, caller: Caller, message: Message, request: Request) -> Response:
    server = mcp_server(service.version)
    if message.method == "initialize":
        return _begin_session(service, caller, message)
    session = _open_session(service, caller, message, request)
    if not message.method:
        await _take_answer(service, caller, message)
        return Response(status_code=202)
    match message.method:
        case "ping":
            return _result(message, {})
        case "tools/list":
            return _result(message, server.list_tools(caller, is_stateless=False))
        case "tools/call":
            return await _call_in_session(service, caller, message, request, session)
        case "notifications/cancelled":
            await _cancel_call(service, caller, message, session)
            return Response(status_code=202)
    raise unknown_method(message)


def _begin_session(service: Service, caller: Caller, message: Message) -> Response:
    result = mcp_server(service.version).initialize(message.params)
    capabilities = message.params.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, Mapping) else {}
    session_id = service.mcp_sessions.begin(
        result["protocolVersion"],
        caller.tenant,
        caller.subject,
        has_run_events=_wants_run_events(capabilities),
        has_elicitation="elicitation" in capabilities,
    )
    return _json(result_message(message.id, result), headers={SESSION_HEADER: session_id})


def _open_session(service: Service, caller: Caller, message: Message, request: Request) -> Session:
    session_id = request.headers.get(SESSION_HEADER)
    if session_id is None:
        if (revision := request.headers.get(REVISION_HEADER)) is not None and revision > STATELESS_REVISIONS[0]:
            require_revision(revision, request_id=message.id)
        text = f"the header {SESSION_HEADER} is missing: begin with initialize"
        raise RpcError(INVALID_REQUEST, text, request_id=message.id)
    session = service.mcp_sessions.open(session_id, caller.tenant, caller.subject)
    if session is None:
        text = "there is no such session: begin with initialize"
        raise RpcError(NOT_PERMITTED, text, request_id=message.id, status=404)
    log_fields.set({**log_fields.get(), "mcp_session": session.nonce})
    return session


async def _call_in_session(
    service: Service, caller: Caller, message: Message, request: Request, session: Session
) -> Response:
    _recognise_repetition(caller, _call_key(session, message.id), message)
    under_way = CallUnderWay(
        has_run_events=session.has_run_events,
        progress_token=progress_token(message),
        asks_user=session.has_elicitation and _takes_stream(request),
    )
    running = (session.nonce, message.id)
    service.mcp_calls[running] = under_way
    return await _call(
        service,
        caller,
        message,
        request,
        under_way,
        is_stateless=False,
        session=session.nonce,
        on_end=lambda: service.mcp_calls.pop(running, None),
    )


async def _cancel_call(service: Service, caller: Caller, message: Message, session: Session) -> None:
    """Cancel the run of a call of the session. Of a call in another process the run is known by the call's key; a
    cancel that comes too late, or names no call, changes nothing.
    """
    named = message.params.get("requestId")
    if isinstance(named, bool) or not isinstance(named, str | int):
        return
    under_way = service.mcp_calls.get((session.nonce, named))
    names = new_run_names(
        fresh_token="",
        tenant=caller.tenant,
        subject=caller.subject,
        agent_id="",
        idempotency_key=hashed_token("mcp", _call_key(session, named)),
    )
    run_id = (under_way.run_id if under_way is not None else "") or names.run_id
    with contextlib.suppress(Refused):
        require_access(caller, SPAWN_RUN.access)  # who may not make the call has none to cancel
        await service.application.control.cancel_run(caller, run_id, "the client cancelled its call")


async def _take_answer(service: Service, caller: Caller, message: Message) -> None:
    """Pass the user's answer on to the run that has asked; one to anything else, or too late, changes nothing."""
    named = parse_request_id(message.id)
    if named is None or message.result is None:
        return
    try:
        response = response_of(message.result)
    except ValueError:
        return
    if response is None:
        return
    fields = {"run_id": named[0], "interrupt_id": named[1], "disposition": response.disposition}
    if response.answer:
        fields["answer"] = response.answer
    with contextlib.suppress(Refused):
        await service.mcp_requests.request(RESOLVE, caller, fields)


# --- calls -----------------------------------------------------------------------------------------------------------


async def _call(
    service: Service,
    caller: Caller,
    message: Message,
    request: Request,
    under_way: CallUnderWay,
    *,
    is_stateless: bool,
    session: str = "",
    on_end: Callable[[], object] = lambda: None,
) -> Response:
    """Call a tool, with a stream where its client wants to hear of a run meanwhile."""
    server, slot = mcp_server(service.version), None
    try:
        if server.is_long(message, caller):
            slot = await service.mcp_long_calls.acquire(_holder(caller, session), wait_s=LONG_CALL_WAIT_S)

        async def work(send: Send) -> Mapping[str, Any]:
            under_way.send = send
            current_call.set(under_way)
            try:
                result = await server.call_tool(message, caller, service.mcp_requests, is_stateless=is_stateless)
            except RpcError as error:
                return error_message(error)
            return result_message(message.id, result)

        wants_stream = under_way.has_run_events or under_way.progress_token is not None or under_way.asks_user
        if not (wants_stream and _takes_stream(request) and server.is_run(message)):
            answer = await work(send_nothing)
            code = answer.get("error", {}).get("code")
            return _json(answer, status=HTTP_STATUS.get(code, 200) if is_stateless and code is not None else 200)
        stream_slot = service.shares.started.try_acquire(caller.holder)
        ends = [stream_slot.release, on_end, *([slot.release] if slot is not None else [])]
        slot, on_end = None, lambda: None
        return _message_stream(service, caller, call_messages(work), ends)
    finally:
        if slot is not None:
            slot.release()
        on_end()


def _message_stream(
    service: Service, caller: Caller, messages: Messages, releases: list[Callable[[], object]]
) -> MessageStream:
    """Return a stream that ends with the access of its caller, and releases what it holds when it ends."""

    def on_close() -> None:
        for release in (let_go, *releases):
            release()

    stream = MessageStream(messages, on_close=on_close)
    let_go = service.open_access.hold(caller, stream.end)
    return stream


def _holder(caller: Caller, session: str) -> Holder:
    return Holder(tenant=caller.tenant, principal=f"{caller.subject} {session}".strip())


def _call_key(session: Session, request_id: RequestId | None) -> str:
    return f"{session.nonce}:{request_id}"


def _takes_stream(request: Request) -> bool:
    """Return whether the client takes server-sent events. A client that says nothing takes what it opted in to."""
    accept = request.headers.get("accept", "*/*")
    return "text/event-stream" in accept or "*/*" in accept


def _recognise_repetition(caller: Caller, key: Any, message: Message, *, answers: Any = None) -> None:
    """Draw the command ids of a call from its key, so that the same message again is the same call."""
    context = current_request.get()
    if context.idempotency_key:
        key = context.idempotency_key
    if not isinstance(key, str) or not key:
        return
    parts = () if answers is None else (orjson.dumps(answers, option=orjson.OPT_SORT_KEYS).decode(),)
    context.idempotency_key = hashed_token("mcp", key, *parts)
    context.scope = (caller.tenant, caller.subject, "mcp", str(message.params.get("name")))
    context.hash_body(orjson.dumps(message.params.get("arguments"), option=orjson.OPT_SORT_KEYS))


def _wants_run_events(capabilities: Mapping[str, Any]) -> bool:
    return any(
        isinstance(asked := capabilities.get(name), Mapping) and asked.get("runEvents") is True for name in RUN_EVENTS
    )


# --- answers ---------------------------------------------------------------------------------------------------------


def _result(message: Message, result: Mapping[str, Any]) -> Response:
    return _json(result_message(message.id, result))


def _json(message: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(message), status_code=status, headers=headers, media_type=JSON_MEDIA_TYPE)


def _error(error: RpcError, message: Message, *, is_stateless: bool) -> Response:
    """Return an error in the form of its era: its status is that of the transport, or says what is wrong."""
    if error.request_id is None:
        error.request_id = message.id
    by_code = HTTP_STATUS.get(error.code, 200) if is_stateless else 200
    if error.code in (PARSE_ERROR, INVALID_REQUEST):
        by_code = 400
    return _json(error_message(error), status=error.status or by_code)
