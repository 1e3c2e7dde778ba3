"""Webhooks over HTTP for their senders: receivers without a token, whose proof is in the request, and dry runs.

`/v1/_webhooks/{name}/test` and `/replay` look like the address of a webhook called so, of the tenant {name}. An
administrator with a token means the webhook {name}, as does anyone while there is no webhook of that address;
everything else is a request for it.

Before: webhook_routes.py. After: services/application/webhooks.py.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.operation_routes import operation_handler
from loomlog.services.api.request_parsing import BodyTooLarge, query_flag, raw_body
from loomlog.services.api.responses import record_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import BY_COOKIE, identify
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.webhooks import WebhookReply
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused
from loomlog.services.families.webhook.api import PATH, REPLAY, WebhookRefusal

REPLAY_OF_FILES = replace(REPLAY.http[0], route=f"POST {PATH}/replay", id="replay_webhook", without=("tenant",))
_replay = operation_handler(REPLAY, REPLAY_OF_FILES)
UNKNOWN = WebhookReply(status=404, body=WebhookRefusal(error="unknown_webhook", code="unknown_webhook"))
"""The same for a webhook that is disabled, so that nothing tells the two apart."""


async def receive_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _receive(service, request, "", request.path_params["name"])


async def receive_tenant_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _receive(service, request, request.path_params["tenant"], request.path_params["name"])


async def test_webhook(service: Service, caller: Caller, request: Request) -> Response:
    async def test(caller: Caller) -> Response:
        return await _test(service, request, "", request.path_params["name"])

    return await _either(service, request, "test", test)


async def replay_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _either(service, request, "replay", lambda caller: _replay(service, caller, request))


async def test_tenant_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _test(service, request, request.path_params["tenant"], request.path_params["name"])


# --- receivers -------------------------------------------------------------------------------------------------------


async def _receive(service: Service, request: Request, tenant: str, name: str) -> Response:
    webhooks = service.application.webhooks
    definition = await webhooks.find(tenant, name)
    if definition is None:
        return _response(UNKNOWN)
    headers = _headers(request)
    try:
        body = await raw_body(request, limit=definition.body_bytes)
    except BodyTooLarge:
        webhooks.too_large(definition, headers)
        raise
    reply = await webhooks.receive(definition, tenant, headers, body, sync=query_flag(request, "sync"))
    return _response(reply)


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _response(reply: WebhookReply) -> Response:
    headers = {"retry-after": str(reply.retry_after_s)} if reply.retry_after_s else {}
    return record_response(reply.body, status=reply.status, headers=headers)


# --- administrators --------------------------------------------------------------------------------------------------


async def _either(
    service: Service,
    request: Request,
    word: str,
    handle: Callable[[Caller], Awaitable[Response]],
) -> Response:
    """Handle a request of an administrator, or one for the webhook that is called `word`."""
    name = request.path_params["name"]
    is_receiver = await service.application.webhooks.find(name, word) is not None
    authorization = request.headers.get("authorization")
    try:
        caller = await identify(service, request)
        require_scope(caller, ADMIN)
    except Refused:
        if is_receiver:
            return await _receive(service, request, name, word)
        raise
    if is_receiver and authorization is None and BY_COOKIE not in request.scope:  # everybody is an administrator here
        return await _receive(service, request, name, word)
    return await handle(caller)


async def _test(service: Service, request: Request, tenant: str, name: str) -> Response:
    webhooks = service.application.webhooks
    definition = await webhooks.find(tenant, name)
    if definition is None:
        raise Refused("unknown_webhook", f"there is no webhook {name[:80]!r} that takes requests")
    body = await raw_body(request, limit=definition.body_bytes)
    report = webhooks.dry_run(definition, _headers(request), body)
    return record_response(report)
