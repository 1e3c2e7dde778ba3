"""Webhooks over HTTP: receivers without a token, whose proof is in the request; and what administrators do.

`/v1/_webhooks/{name}/test` and `/replay` look like the address of a webhook called so, of the tenant {name}. An
administrator with a token means the webhook {name}, as does anyone while there is no webhook of that address;
everything else is a request for it.

Before: webhook_routes.py. After: services/application/webhooks.py.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.request_parsing import BodyTooLarge, query_flag, query_integer, raw_body, strict_json_value
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import BY_COOKIE, identify
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import bad_request
from loomlog.services.application.webhooks import WebhookReply
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused
from loomlog.services.families.webhook.definition import AddressedWebhook
from loomlog.services.families.webhook.limits import DELIVERY_ID_CHARACTERS_MAX, RECENT_MAX

REPLAY_BODY_MAX = 4_096
UNKNOWN = WebhookReply(status=404, body={"error": "unknown_webhook"})
"""The same for a webhook that is disabled, so that nothing tells the two apart."""
Json = JsonResponse[dict[str, Any]]


async def receive_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _receive(service, request, "", request.path_params["name"])


async def receive_tenant_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _receive(service, request, request.path_params["tenant"], request.path_params["name"])


async def test_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _either(service, request, "test", _test)


async def replay_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _either(service, request, "replay", _replay)


async def test_tenant_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _test(service, caller, request, request.path_params["tenant"], request.path_params["name"])


async def replay_tenant_webhook(service: Service, caller: Caller, request: Request) -> Response:
    return await _replay(service, caller, request, request.path_params["tenant"], request.path_params["name"])


async def list_recent_deliveries(service: Service, caller: Caller, request: Request) -> Json:
    return await _recent(service, caller, request, "")


async def list_recent_tenant_deliveries(service: Service, caller: Caller, request: Request) -> Json:
    return await _recent(service, caller, request, request.path_params["tenant"])


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
    body = dict(reply.body)
    if "error" in body:
        body["code"] = body["error"]
    return json_response(body, status=reply.status, headers=headers)


# --- administrators --------------------------------------------------------------------------------------------------


async def _either(
    service: Service,
    request: Request,
    word: str,
    handle: Callable[[Service, Caller, Request, str, str], Awaitable[Response]],
) -> Response:
    """Handle a request of an administrator, or one for the webhook that is called `word`."""
    name = request.path_params["name"]
    is_receiver = await service.application.webhooks.find(name, word) is not None
    authorization = request.headers.get("authorization")
    try:
        caller = identify(service, request)
        require_scope(caller, ADMIN)
    except Refused:
        if is_receiver:
            return await _receive(service, request, name, word)
        raise
    if is_receiver and authorization is None and BY_COOKIE not in request.scope:  # everybody is an administrator here
        return await _receive(service, request, name, word)
    return await handle(service, caller, request, "", name)


async def _test(service: Service, caller: Caller, request: Request, tenant: str, name: str) -> Response:
    definition = await _find(service, caller, tenant, name)
    body = await raw_body(request, limit=definition.body_bytes)
    return json_response(await service.application.webhooks.dry_run(caller, definition, _headers(request), body))


async def _find(service: Service, caller: Caller, tenant: str, name: str) -> AddressedWebhook:
    require_scope(caller, ADMIN)
    definition = await service.application.webhooks.find(tenant, name)
    if definition is None:
        raise Refused("unknown_webhook", f"there is no webhook {name[:80]!r} that takes requests")
    return definition


async def _replay(service: Service, caller: Caller, request: Request, tenant: str, name: str) -> Response:
    body = await strict_json_value(request, limit=REPLAY_BODY_MAX)
    delivery_id = body.get("delivery_id") if isinstance(body, dict) else None
    if not isinstance(delivery_id, str) or not 1 <= len(delivery_id) <= DELIVERY_ID_CHARACTERS_MAX:
        raise bad_request("delivery_id: expected the id of a delivery, as recent-deliveries shows it")
    answer = await service.application.webhooks.replay(caller, tenant, name, delivery_id)
    return json_response(answer, status=202)


async def _recent(service: Service, caller: Caller, request: Request, tenant: str) -> Json:
    limit = query_integer(request, "limit", RECENT_MAX, minimum=1, maximum=RECENT_MAX)
    webhooks, name = service.application.webhooks, request.path_params["name"]
    return json_response(await webhooks.recent(caller, tenant, name, limit=limit))
