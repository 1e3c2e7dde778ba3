"""The endpoints of families: one handler for each kind of operation, made for a row of a declaration.

Before: entity_routes.py. After: services/application/entities.py.
"""

from typing import Any

from starlette.requests import Request

from loomlog.services.api.request_parsing import CONTROL_BODY_MAX, json_value, query_integer, query_text
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.route import Handler
from loomlog.services.api.service import Service
from loomlog.services.application.entities import PAGE_DEFAULT, PAGE_MAX
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.command_fields import fields_schema
from loomlog.services.core.families import NAME_BYTES_MAX, Command, Family, Query

CURSOR_CHARACTERS_MAX = 1_024
"""Longest cursor: a name in base64."""
PARAMETER_CHARACTERS_MAX = 4_096
"""Longest parameter of a query."""

AnyFamily = Family[Any, Any, Any]


def command_handler(family: AnyFamily, row: Command[Any]) -> Handler:
    """Return the endpoint of a command: the body has its fields, the answer is its reply."""
    is_optional = "required" not in fields_schema(row.record)

    async def give(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        fields = await json_value(request, limit=CONTROL_BODY_MAX, optional=is_optional)
        reply, position = await service.application.entities.command(
            caller, family, row, fields, tenant=query_text(request, "tenant")
        )
        return json_response(reply, headers={POSITION_HEADER: position})

    return give


def show_handler(family: AnyFamily) -> Handler:
    """Return the endpoint that shows an aggregate."""

    async def show(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        return json_response(
            await service.application.entities.show(
                caller,
                family,
                query_text(request, "id", max_length=NAME_BYTES_MAX),
                tenant=query_text(request, "tenant"),
            )
        )

    return show


def list_handler(family: AnyFamily) -> Handler:
    """Return the endpoint that lists aggregates by name."""

    async def list_page(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        return json_response(
            await service.application.entities.list(
                caller,
                family,
                tenant=query_text(request, "tenant"),
                prefix=query_text(request, "prefix", max_length=NAME_BYTES_MAX),
                cursor=query_text(request, "cursor", max_length=CURSOR_CHARACTERS_MAX),
                limit=query_integer(request, "limit", PAGE_DEFAULT, minimum=1, maximum=PAGE_MAX),
            )
        )

    return list_page


def query_handler(family: AnyFamily, query: Query[Any]) -> Handler:
    """Return the endpoint of a question about an aggregate."""

    async def answer(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
        parameters = {
            name: query_text(request, name, max_length=PARAMETER_CHARACTERS_MAX)
            for name in query.parameters
            if name in request.query_params
        }
        return json_response(
            await service.application.entities.query(
                caller,
                family,
                query,
                query_text(request, "id", max_length=NAME_BYTES_MAX),
                parameters,
                tenant=query_text(request, "tenant"),
            )
        )

    return answer
