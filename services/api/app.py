"""The ASGI application: FastAPI over the one table of routes, with one error format for every failure.

A route's endpoint is called after its caller was authenticated and may call it by the access of its row, and after
the positions that the request names were waited for, before a byte of the body is read. Routes are found
(route_lookup.py), and parameters and bodies read (request_parsing.py) by our own code, because FastAPI reads a whole
body before anything can be refused, and its routing and dependencies cost more than the rest of a start. It keeps the
table for tools that read one, and starts and ends with the process.

An unexpected exception becomes a 500 without details; the traceback is in the log. A request still unanswered when the
process stops gets a 503 with the reason: uvicorn would cancel the request and answer a bare 500.

Before: main.py. After: routes.py.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loomlog.connectors.errors import Transient
from loomlog.connectors.process.logs import log_fields
from loomlog.schemas.ids import hashed_token
from loomlog.services.api.compression import compress
from loomlog.services.api.docs_page import render_page
from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.mcp.authorization import name_metadata
from loomlog.services.api.open_access import ENDED
from loomlog.services.api.openapi import build_document, encode_document
from loomlog.services.api.request_parsing import BodyTooLarge, BodyTooSlow, drain
from loomlog.services.api.request_shares import NO_SLOTS
from loomlog.services.api.request_start import (
    REQUEST_ID_HEADER,
    begin_request,
    check_encoding,
    check_query,
    position_tokens,
    use_idempotency_key,
)
from loomlog.services.api.responses import json_response, refusal_response
from loomlog.services.api.route import Route, SocketHandler
from loomlog.services.api.route_lookup import RouteLookup
from loomlog.services.api.routes import ROUTES, check_routes
from loomlog.services.api.service import Service
from loomlog.services.api.ui_page import build_page_app, is_page_path
from loomlog.services.api.ui_session import BY_COOKIE, COOKIE_ANSWER_HEADERS, has_token, identify
from loomlog.services.application.authentication import require_access
from loomlog.services.application.errors import key_reused, share_refusal, stopping_error, unavailable
from loomlog.services.application.request_context import RequestContext, current_request
from loomlog.services.application.resources import new_token
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import ShareExhausted
from loomlog.services.families.ports.acts import Act
from loomlog.services.stream.entities.answers import CommandReused

ANONYMOUS = Caller(name="", tenant="", subject="", scopes=frozenset())
"""The caller of a public route; has no scopes."""
log = logging.getLogger(__name__)
RequestHandler = Callable[[Request], Coroutine[Any, Any, Response]]


class LeanRoute(APIRoute):
    """Call the endpoint with the request and send the response it returns; no parameters, no
    models, no dependencies.
    """

    def get_route_handler(self) -> RequestHandler:
        endpoint: RequestHandler = self.endpoint
        return endpoint


class DirectApp(FastAPI):
    """FastAPI that looks up routes itself, before FastAPI's own machinery, which is left with the life of the process.

    FastAPI's middlewares for files, dependencies and body limits are not needed here.
    """

    lookup = RouteLookup(())
    routeless: ASGIApp
    """What answers when no route takes a request."""
    socket_routes: Mapping[str, ASGIApp] = {}
    """WebSocket routes for ClientWebSocketProtocol, by path."""
    page_app: ASGIApp | None = None
    """The web page: all paths below /ui but those that are routes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asgiapp: ASGIApp | None = None
        if scope["type"] == "websocket":
            asgiapp = self.socket_routes.get(scope["path"])
        elif scope["type"] == "http":
            asgiapp = self.routeless
            if target := self.lookup.find(scope["method"], scope["path"]):
                asgiapp, scope["path_params"] = target
            elif is_page_path(scope["path"]) and self.page_app is not None:
                asgiapp = self.page_app
        await (super().__call__ if asgiapp is None else asgiapp)(scope, receive, send)


@lru_cache(maxsize=4)
def _render_documents(version: str, routes: tuple[Route, ...]) -> tuple[bytes, bytes]:
    """Return the OpenAPI document and the page made from it: a second of work, once for the same routes."""
    return encode_document(version, routes), render_page(version, routes)


def build_app(service: Service, routes: Sequence[Route] = ROUTES) -> DirectApp:
    """Build the application over a service; it serves before the service is ready and reports that state."""
    check_routes(routes)
    service.metrics.streams.set_function(lambda: service.shares.open_streams)
    service.openapi_document, service.docs_page = _render_documents(service.version, tuple(routes))
    app = DirectApp(
        title="loomlog",
        version=service.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.openapi = lambda: build_document(service.version, routes)  # type: ignore[method-assign]  # FastAPI's way
    app.router.route_class = LeanRoute
    direct: list[tuple[str, str, ASGIApp]] = []
    unexpected = _build_error_handler(service)
    for route in routes:
        endpoint = _build_endpoint(service, route)
        direct.append((route.method, route.path, ServerErrorMiddleware(_as_asgi(endpoint), handler=unexpected)))
        app.add_api_route(
            route.path,
            endpoint,
            methods=[route.method],
            name=route.operation_id,
            response_model=None,
        )
    app.lookup = RouteLookup(direct)
    app.page_app = build_page_app(service)
    app.socket_routes = {
        route.path: _build_socket(service, route, route.socket_handler)
        for route in routes
        if route.socket_handler is not None
    }
    app.routeless = ServerErrorMiddleware(_as_asgi(_build_routeless_endpoint(service, app.lookup)), handler=unexpected)
    return app


def _build_endpoint(service: Service, route: Route) -> RequestHandler:
    handler, access = route.handler, route.access
    method, path, count = route.method, route.path, service.metrics.count

    known, takes_position, takes = route.query_names, route.accepts_position, route.takes
    may_open = route.opens_with_public_config
    own_act, checks_query, is_mutating = route.own_act, not route.takes_any_query, route.is_mutating
    act = own_act or route.act or ""

    async def answer(request: Request) -> Response:
        context = begin_request(request)
        slots, caller = NO_SLOTS, ANONYMOUS
        try:
            is_open = access.is_public or (may_open and service.public_config and not has_token(request))
            if not is_open:
                caller = await identify(service, request)
                if BY_COOKIE in request.scope:
                    context.transport = "web"
                log_fields.set({**log_fields.get(), "tenant": caller.tenant})
                require_access(caller, access)
                _admit_call(service, caller)
            check_encoding(request)
            slots = await service.shares.enter(takes, caller, path=request.scope["path"])
            if checks_query and request.scope["query_string"]:
                check_query(request, known)
            if is_mutating:
                use_idempotency_key(context, caller, request)
                if context.idempotency_key and not route.recognises_key:
                    context.require_first = service.application.require_first_body
            if takes_position and (tokens := position_tokens(request)):
                await service.application.barrier.wait_for(tokens)
            response: Response = await (
                _carry_out_act(service, route, caller, request, context)
                if own_act
                else handler(service, caller, request)
            )
            await compress(request, response)
            stream: object = response
            if isinstance(stream, EventStream):
                _keep_open(service, caller, stream, slots.hand_over_stream())
        except BodyTooLarge as too_large:
            response = _DrainBeforeResponse(request, refusal_response(too_large, {"connection": "close"}))
        except BodyTooSlow as too_slow:
            response = refusal_response(too_slow, {"connection": "close"})
        except Refused as declined:
            response = refusal_response(declined)
            if act and not context.is_dispatched and caller is not ANONYMOUS:
                _note_refusal(service, act, caller, declined)
        except CommandReused:
            response = refusal_response(key_reused())
        except ShareExhausted as exhausted:
            response = refusal_response(share_refusal(exhausted))
        except Transient as error:
            response = refusal_response(unavailable("outside", error))
        except ClientDisconnect:
            response = _EmptyResponse()
        except asyncio.CancelledError:
            if not service.is_stopping:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            response = refusal_response(stopping_error(), {"connection": "close"})
        finally:
            slots.release()
        count(method, path, response.status_code)
        if response.status_code in (401, 403):
            name_metadata(service, request, response)
        response.raw_headers.append((REQUEST_ID_HEADER, context.request_id.encode()))
        if BY_COOKIE in request.scope:
            response.raw_headers.extend(COOKIE_ANSWER_HEADERS)
        return response

    answer.__name__ = route.operation_id
    return answer


def _admit_call(service: Service, caller: Caller) -> None:
    """Count a request against the quotas. Raises Refused(tenant_quota_exhausted)."""
    application = service.current_application
    if application is not None:
        application.quotas.admit_call(caller)


async def _carry_out_act(
    service: Service, route: Route, caller: Caller, request: Request, context: RequestContext
) -> Any:
    """Carry out an act of a route that is no operation; what it says of the request is known at the end."""
    context.is_dispatched = True
    if service.current_application is None:
        return await route.handler(service, caller, request)  # which says what is missing
    act_id = context.token("act", context.body_sha256) if context.idempotency_key else new_token()
    fields = {**request.path_params, **request.query_params}
    act = Act(
        act_id=hashed_token("act", act_id),
        operation=route.own_act,
        caller=caller,
        tenant=caller.tenant,
        target=" ".join(map(str, fields.values())),
        request=fields,
    )

    async def work() -> Any:
        try:
            return await route.handler(service, caller, request)
        finally:
            if context.change.after is None and context.body:
                context.change.after = _json_or_size(context.body)

    return await service.application.acts.carry_out(act, work, context.change)


def _json_or_size(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"bytes": len(body)}


def _note_refusal(service: Service, act: str, caller: Caller, declined: Refused) -> None:
    """Note an act that was refused before it reached the dispatch; while the process starts nothing is recorded."""
    if service.current_application is not None:
        service.current_application.acts.note_refusal(act, caller, caller.tenant, declined.code)


def _keep_open(service: Service, caller: Caller, stream: EventStream, release_slot: Callable[[], None]) -> None:
    """Let a stream end with the access of its caller, and give back what it holds when it ends."""
    release = service.open_access.hold(caller, lambda: stream.end(ENDED))

    def on_close() -> None:
        release()
        release_slot()

    stream.on_close = on_close


def _build_socket(service: Service, route: Route, handler: SocketHandler) -> ASGIApp:
    """A socket handler authenticates its caller itself, because the client may be unable to send a header."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        service.metrics.count(route.method, route.path, await handler(service, route.access, scope, receive, send))

    return answer


def _as_asgi(endpoint: RequestHandler) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return answer


class _DrainBeforeResponse(Response):
    """A response to a body still being received: sent at once, then the rest of the body is read and discarded."""

    def __init__(self, request: Request, response: Response) -> None:
        super().__init__(status_code=response.status_code)
        self.body, self.raw_headers = response.body, response.raw_headers
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drain(self._request)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _EmptyResponse(Response):
    """A response that sends nothing: the client disconnected while sending."""

    def __init__(self) -> None:
        super().__init__(status_code=499)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        return None


def _build_routeless_endpoint(service: Service, lookup: RouteLookup) -> RequestHandler:
    async def answer(request: Request) -> Response:
        """Respond to a request that no route takes: no such path, or not with this method.

        Under `/v1` the token is checked first: who has none cannot list the routes.
        """
        path = request.scope["path"]  # as it was looked up; that of the URL has lost line ends
        headers = {"x-request-id": begin_request(request).request_id}
        if allowed := sorted(lookup.methods(path)):
            text = f"{path} takes {', '.join(allowed)}, not {request.method}"
            return refusal_response(Refused("method_not_allowed", text), {**headers, "allow": ", ".join(allowed)})
        try:
            if path.startswith("/v1/"):
                await identify(service, request)
        except Refused as refusal:
            return refusal_response(refusal, headers)
        return refusal_response(Refused("route_not_found", f"there is no route {path[:200]}"), headers)

    return answer


def _build_error_handler(service: Service) -> Callable[[Request, Exception], Coroutine[Any, Any, Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        """Respond to a bug, or to a request whose resources are being closed; Starlette logs the error after this
        response.
        """
        request_id = current_request.get().request_id
        headers = {"x-request-id": request_id}
        if service.is_stopping:
            return refusal_response(stopping_error(), headers)
        log.error("request %s failed: %s %s", request_id, request.method, request.url.path, exc_info=error)
        text = "internal error; its trace is in the log of this process, under the request id"
        return json_response({"code": "internal", "error": text, "request_id": request_id}, status=500, headers=headers)

    return answer
