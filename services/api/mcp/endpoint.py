"""MCP over HTTP: one message a POST to /v1/_mcp.

    a session that is dead, or another's     404 with -32001: the client begins another one
    a notification                           202, and nothing is done: a client cancels by closing its request
    spawn_run with the events of its run     server-sent events, the answer last; otherwise JSON

A call with an id of a session that was sent before is the same call, and one with an Idempotency-Key in whatever
session: its commands carry the same ids. So a thin client repeats a message after a broken connection, and nothing is
done twice.

Before: routes.py. After: server.py.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from loomlog.connectors.process.logs import log_fields
from loomlog.schemas.ids import hashed_token
from loomlog.services.api.mcp.messages import (
    HTTP_STATUS,
    INVALID_REQUEST,
    NOT_PERMITTED,
    PARSE_ERROR,
    STATELESS_REVISIONS,
    Message,
    RpcError,
    check_stateless,
    error_message,
    notification,
    parse_message,
    require_revision,
    result_message,
)
from loomlog.services.api.mcp.operations import SPAWN_RUN, McpOperations, RunEvent
from loomlog.services.api.mcp.server import RUN_EVENTS, mcp_server, refused_result, success, unknown_method
from loomlog.services.api.mcp.sessions import Session
from loomlog.services.api.request_parsing import raw_body
from loomlog.services.api.responses import JSON_MEDIA_TYPE
from loomlog.services.api.service import Service
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.request_context import current_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operation_input import parse_input
from loomlog.services.core.refusals import Refused

BODY_MAX = 4 * 1024 * 1024
"""Bytes of a message (parity: reference surfaces 3.1)."""
SESSION_HEADER, REVISION_HEADER = "mcp-session-id", "mcp-protocol-version"
KEEPALIVE_S = 15.0


class DeadSession(RpcError):
    """A session that is over, or another principal's."""


async def answer_message(service: Service, caller: Caller, request: Request) -> Response:
    """Answer one message."""
    is_stateless = request.headers.get(REVISION_HEADER, "") in STATELESS_REVISIONS
    message = Message(None, "", {})
    try:
        message = parse_message(await raw_body(request, limit=BODY_MAX))
        if message.id is None:
            return Response(status_code=202)
        if is_stateless:
            check_stateless(message, request.headers)
            return _json(result_message(message.id, await _stateless(service, caller, message)))
        return await _in_session(service, caller, message, request)
    except RpcError as error:
        return _error(error, message, is_stateless=is_stateless)


async def end_session(service: Service, caller: Caller, request: Request) -> Response:
    """End a session: its client forgets the id, and there is nothing else that has it."""
    return Response(status_code=204)


async def _stateless(service: Service, caller: Caller, message: Message) -> dict[str, Any]:
    server = mcp_server(service.version)
    match message.method:
        case "server/discover":
            return server.discover()
        case "tools/list":
            return server.list_tools(caller, is_stateless=True)
        case "tools/call":
            meta: Mapping[str, Any] = message.params["_meta"]
            _recognise_repetition(caller, meta.get("io.loomlog/idempotencyKey"), message)
            return await server.call_tool(message, caller, _requests(service), is_stateless=True)
    raise unknown_method(message)


async def _in_session(service: Service, caller: Caller, message: Message, request: Request) -> Response:
    server = mcp_server(service.version)
    if message.method == "initialize":
        result = server.initialize(message.params)
        session_id = service.mcp_sessions.begin(
            result["protocolVersion"], caller.tenant, caller.subject, has_run_events=_wants_run_events(message.params)
        )
        return _json(result_message(message.id, result), headers={SESSION_HEADER: session_id})
    session = _open_session(service, caller, message, request)
    match message.method:
        case "ping":
            return _json(result_message(message.id, {}))
        case "tools/list":
            return _json(result_message(message.id, server.list_tools(caller, is_stateless=False)))
        case "tools/call":
            _recognise_repetition(caller, f"{session.nonce}:{message.id}", message)
            if session.has_run_events and message.params.get("name") == "spawn_run":
                return await _stream_run(service, caller, message)
            result = await server.call_tool(message, caller, _requests(service), is_stateless=False)
            return _json(result_message(message.id, result))
    raise unknown_method(message)


def _requests(service: Service) -> Dispatch:
    current_request.get().transport = "mcp"
    application = service.application
    return application.dispatch.with_handlers(McpOperations(application).by_operation())


def _open_session(service: Service, caller: Caller, message: Message, request: Request) -> Session:
    session_id = request.headers.get(SESSION_HEADER)
    if session_id is None:
        if (revision := request.headers.get(REVISION_HEADER)) is not None and revision > STATELESS_REVISIONS[0]:
            require_revision(revision, request_id=message.id)
        text = f"the header {SESSION_HEADER} is missing: begin with initialize"
        raise RpcError(INVALID_REQUEST, text, request_id=message.id)
    session = service.mcp_sessions.open(session_id, caller.tenant, caller.subject)
    if session is None:
        raise DeadSession(NOT_PERMITTED, "there is no such session: begin with initialize", request_id=message.id)
    log_fields.set({**log_fields.get(), "mcp_session": session.nonce})
    return session


def _recognise_repetition(caller: Caller, key: Any, message: Message) -> None:
    """Draw the command ids of a call from its key, so that the same message again is the same call."""
    context = current_request.get()
    if context.idempotency_key:
        key = context.idempotency_key
    if not isinstance(key, str) or not key:
        return
    context.idempotency_key = hashed_token("mcp", key)
    context.scope = (caller.tenant, caller.subject, "mcp", str(message.params.get("name")))
    context.hash_body(orjson.dumps(message.params.get("arguments"), option=orjson.OPT_SORT_KEYS))


def _wants_run_events(params: Mapping[str, Any]) -> bool:
    capabilities = params.get("capabilities")
    if not isinstance(capabilities, Mapping):
        return False
    return any(
        isinstance(asked := capabilities.get(name), Mapping) and asked.get("runEvents") is True for name in RUN_EVENTS
    )


async def _stream_run(service: Service, caller: Caller, message: Message) -> Response:
    """Answer spawn_run with the events of its run as notifications, and the result at the end."""
    target = mcp_server(service.version).find_tool(message, caller)
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def tell(event: RunEvent) -> None:
        events.put_nowait(notification("notifications/loomcycle/run_event", event))

    async def work() -> dict[str, Any]:
        try:
            body = parse_input(SPAWN_RUN.input, target.fields, code="bad_request")
            outcome = await McpOperations(service.application).run_to_end(caller, body, tell)
            return result_message(message.id, success(outcome))
        except Refused as refused:
            return result_message(message.id, refused_result(refused, message))
        except RpcError as error:
            return error_message(error)
        finally:
            events.put_nowait(None)

    task = asyncio.get_running_loop().create_task(work())

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_S):
                        event = await events.get()
                except TimeoutError:
                    yield b": keepalive\n\n"
                    continue
                if event is None:
                    break
                yield _sse(event)
            yield _sse(await task)
        finally:
            task.cancel()

    return StreamingResponse(body(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _sse(message: Mapping[str, Any]) -> bytes:
    return b"event: message\ndata: " + orjson.dumps(message) + b"\n\n"


def _json(message: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(message), status_code=status, headers=headers, media_type=JSON_MEDIA_TYPE)


def _error(error: RpcError, message: Message, *, is_stateless: bool) -> Response:
    """Return an error in the form of its era: its status is that of the transport, or says what is wrong."""
    if error.request_id is None:
        error.request_id = message.id
    status = HTTP_STATUS.get(error.code, 200) if is_stateless else 200
    if isinstance(error, DeadSession):
        status = 404
    elif error.code in (PARSE_ERROR, INVALID_REQUEST):
        status = 400
    return _json(error_message(error), status=status)
