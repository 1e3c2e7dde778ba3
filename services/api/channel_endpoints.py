"""Channels over HTTP, in the formats of reference surfaces 1.7, and a stream of messages.

Names of channels may have slashes, escaped (`research%2Fc1`) or not: the last part of a path says what to do.

Before: channel_routes.py. After: services/application/channels.py.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import CONTROL_BODY_MAX, query_integer, query_text, strict_json_value
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.route import AsgiResponse
from loomlog.services.api.service import Service
from loomlog.services.application.channels import QUEUES_DEFAULT, QUEUES_MAX
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

Json = JsonResponse[dict[str, Any]]
DECIMAL_DIGITS_MAX = 9


# --- declarations ----------------------------------------------------------------------------------------------------


async def list_channels(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(await service.application.channels.list(caller, tenant=_tenant(request)))


async def create_channel(service: Service, caller: Caller, request: Request) -> Json:
    row, position = await service.application.channels.create(caller, await _body(request), tenant=_tenant(request))
    return json_response(row, status=201, headers=position_headers(position))


async def update_channel(service: Service, caller: Caller, request: Request) -> Json:
    row, position = await service.application.channels.update(
        caller, _name(request), await _body(request), tenant=_tenant(request)
    )
    return json_response(row, headers=position_headers(position))


async def delete_channel(service: Service, caller: Caller, request: Request) -> Response:
    position = await service.application.channels.delete(caller, _name(request), tenant=_tenant(request))
    return Response(status_code=204, headers=position_headers(position))


async def purge_channel(service: Service, caller: Caller, request: Request) -> Json:
    answer, positions = await service.application.channels.purge(caller, _name(request), tenant=_tenant(request))
    return json_response(answer, headers=position_headers(*positions))


# --- messages --------------------------------------------------------------------------------------------------------


async def publish_message(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.channels.publish(
        caller, _name(request), await _body(request), tenant=_tenant(request), user_id=_user_id(request)
    )
    return json_response(answer, headers=position_headers(position))


async def publish_system_message(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.channels.publish_system(
        caller, _name(request), await _body(request), tenant=_tenant(request)
    )
    return json_response(answer, headers=position_headers(position))


async def take_messages(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.channels.subscribe(
        caller, _name(request), await _body(request, optional=True), tenant=_tenant(request), user_id=_user_id(request)
    )
    return json_response(answer, headers=position_headers(position))


async def peek_messages(service: Service, caller: Caller, request: Request) -> Json:
    fields: dict[str, Any] = {
        name: query_text(request, name) for name in ("from_cursor", "scope_id", "order") if name in request.query_params
    }
    most = request.query_params.get("max_messages")
    if most:
        is_number = most.isascii() and most.isdecimal() and len(most) <= DECIMAL_DIGITS_MAX
        fields["max_messages"] = int(most) if is_number else most
    answer = await service.application.channels.peek(
        caller, _name(request), fields, tenant=_tenant(request), user_id=_user_id(request)
    )
    return json_response(answer)


async def list_channel_queues(service: Service, caller: Caller, request: Request) -> Json:
    answer = await service.application.channels.queues(
        caller,
        _name(request),
        limit=query_integer(request, "limit", QUEUES_DEFAULT, minimum=1, maximum=QUEUES_MAX),
        cursor=query_text(request, "cursor"),
        tenant=_tenant(request),
    )
    return json_response(answer)


async def list_channel_readers(service: Service, caller: Caller, request: Request) -> Json:
    answer = await service.application.channels.readers(
        caller, _name(request), scope_id=query_text(request, "scope_id"), tenant=_tenant(request)
    )
    return json_response(answer)


async def acknowledge_messages(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.channels.ack(
        caller, _name(request), await _body(request), tenant=_tenant(request), user_id=_user_id(request)
    )
    return json_response(answer, headers=position_headers(position))


async def await_messages(service: Service, caller: Caller, request: Request) -> Json:
    body = await _body(request)
    return json_response(await service.application.channels.await_(caller, body, tenant=_tenant(request)))


async def broadcast_message(service: Service, caller: Caller, request: Request) -> Json:
    body = await _body(request)
    answer, positions = await service.application.channels.broadcast(caller, body, tenant=_tenant(request))
    return json_response(answer, headers=position_headers(*positions))


async def list_agent_cursors(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(
        await service.application.channels.agent_cursors(
            caller, request.path_params["agent_name"], tenant=_tenant(request)
        )
    )


async def follow_channel(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    cursor = request.headers.get("last-event-id") or query_text(request, "from_cursor")
    stream = await service.application.channels.follow(
        caller,
        _name(request),
        scope_id=query_text(request, "scope_id"),
        from_cursor=cursor,
        tenant=_tenant(request),
    )
    return EventStream(stream, with_ids=True)


# --- requests --------------------------------------------------------------------------------------------------------


async def _body(request: Request, *, optional: bool = False) -> Any:
    try:
        return await strict_json_value(request, limit=CONTROL_BODY_MAX, optional=optional)
    except Refused as refused:
        if refused.code == "bad_request":
            raise Refused("invalid_body", refused.message) from refused
        raise


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _user_id(request: Request) -> str:
    return str(request.path_params.get("user_id", ""))


def _tenant(request: Request) -> str:
    return query_text(request, "tenant")
