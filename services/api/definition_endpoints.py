"""Definitions over HTTP, in the formats of reference surfaces 1.4; the body of an operation is the input of the tool.

Before: definition_routes.py. After: services/application/definitions.py.
"""

from typing import Any

from starlette.requests import Request

from loomlog.connectors.definitions import Kind
from loomlog.services.api.request_parsing import CONTROL_BODY_MAX, json_value, query_text
from loomlog.services.api.response_models import Library
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.route import Handler
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller

BODY_MAX = 2 * 1024 * 1024
"""Longest operation: a skill with its files."""


def operation_handler(kind: Kind) -> Handler:
    """Return the endpoint of the operations of a kind."""

    async def operate(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        body = await json_value(request, limit=BODY_MAX)
        reply = await service.application.definitions.operate(caller, kind, body, tenant=query_text(request, "tenant"))
        headers = {POSITION_HEADER: reply.position} if reply.position else {}
        return json_response(dict(reply.fields), headers=headers)

    return operate


def names_handler(kind: Kind) -> Handler:
    """Return the endpoint that lists the names of a kind."""

    async def names(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        return json_response(service.application.definitions.names(caller, kind, tenant=query_text(request, "tenant")))

    return names


async def evaluation(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    body = await json_value(request, limit=CONTROL_BODY_MAX)
    reply = await service.application.evaluations.operate(caller, body, tenant=query_text(request, "tenant"))
    headers = {POSITION_HEADER: reply.position} if reply.position else {}
    return json_response(dict(reply.fields), headers=headers)


async def volume_operation(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    body = await json_value(request, limit=CONTROL_BODY_MAX)
    reply = await service.application.volumes.operate(caller, body, tenant=query_text(request, "tenant"))
    headers = {POSITION_HEADER: reply.position} if reply.position else {}
    return json_response(dict(reply.fields), headers=headers)


async def list_volumes(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    return json_response(service.application.volumes.list(caller, tenant=query_text(request, "tenant")))


async def list_ephemeral_volumes(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    return json_response(service.application.volumes.list_ephemeral(caller, tenant=query_text(request, "tenant")))


async def list_library(service: Service, caller: Caller, request: Request) -> JsonResponse[Library]:
    return json_response(
        service.application.definitions.library(
            caller, request.path_params["shelf"], tenant=query_text(request, "tenant")
        )
    )
