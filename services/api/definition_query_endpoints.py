"""Reads of definitions of all kinds over HTTP, batches of them, and blame.

Before: definition_query_routes.py. After: services/application/definition_queries.py, definition_history.py.
"""

from typing import Any

from starlette.requests import Request

from loomlog.services.api.definition_endpoints import BODY_MAX
from loomlog.services.api.request_parsing import json_value, query_integer, query_text
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.run_endpoints import parse_statuses
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.definition_json import (
    AppliedDefinitions,
    Blame,
    DefinitionDiff,
    DefinitionList,
    DefinitionRuns,
    DefinitionsAt,
)
from loomlog.services.application.definition_queries import PAGE_DEFAULT, PAGE_MAX, DefinitionFilter
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.definition.lineage import DEPTH_DEFAULT, DEPTH_MAX

CURSOR_MAX = 1_024


async def list_definitions(service: Service, caller: Caller, request: Request) -> JsonResponse[DefinitionList]:
    criteria = DefinitionFilter(
        kind=query_text(request, "kind"),
        name=query_text(request, "name"),
        prefix=query_text(request, "prefix"),
        active=_optional_flag(request, "active"),
        retired=_optional_flag(request, "retired"),
        created_by=query_text(request, "created_by"),
    )
    return json_response(
        service.application.definition_queries.list(
            caller,
            criteria,
            tenant=query_text(request, "tenant"),
            limit=query_integer(request, "limit", PAGE_DEFAULT, minimum=1, maximum=PAGE_MAX),
            after=query_text(request, "cursor", max_length=CURSOR_MAX),
        )
    )


async def get_definition(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    def_id, tenant = request.path_params["def_id"], query_text(request, "tenant")
    return json_response(await service.application.definition_queries.show(caller, def_id, tenant=tenant))


async def compare_definitions(service: Service, caller: Caller, request: Request) -> JsonResponse[DefinitionDiff]:
    return json_response(
        await service.application.definition_queries.diff(
            caller, request.path_params["def_id"], to=query_text(request, "to"), tenant=query_text(request, "tenant")
        )
    )


async def get_lineage(service: Service, caller: Caller, request: Request) -> JsonResponse[dict[str, Any]]:
    return json_response(
        service.application.definition_queries.lineage(
            caller,
            request.path_params["def_id"],
            depth=query_integer(request, "depth", DEPTH_DEFAULT, minimum=1, maximum=DEPTH_MAX),
            tenant=query_text(request, "tenant"),
        )
    )


async def list_definition_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[DefinitionRuns]:
    page = await service.application.definition_queries.runs(
        caller,
        request.path_params["def_id"],
        statuses=parse_statuses(query_text(request, "status") or "all"),
        tenant=query_text(request, "tenant"),
        limit=query_integer(request, "limit", limits.LIST_DEFAULT, minimum=1, maximum=limits.LIST_MAX),
        after=query_text(request, "cursor", max_length=CURSOR_MAX),
    )
    topic = service.application.barrier.topic
    return json_response({"runs": [run_json(row, topic) for row in page.rows], "next": page.next or None})


async def list_definitions_at(service: Service, caller: Caller, request: Request) -> JsonResponse[DefinitionsAt]:
    history = service.application.definition_history
    time, position = query_text(request, "time"), query_text(request, "position")
    if bool(time) == bool(position):
        raise bad_request("expected time or position, and one of them only")
    filters = {name: query_text(request, name) for name in ("kind", "name", "tenant")}
    if position:
        return json_response(await history.at_position(caller, position, **filters))
    return json_response(await history.at_time(caller, parse_time_ms("time", time), **filters))


async def apply_definitions(service: Service, caller: Caller, request: Request) -> JsonResponse[AppliedDefinitions]:
    body = await json_value(request, limit=BODY_MAX)
    reply = await service.application.definitions.apply(caller, body, tenant=query_text(request, "tenant"))
    answer: AppliedDefinitions = {
        "batch": reply.fields["batch"],
        "status": "applied",
        "definitions": reply.fields["definitions"],
    }
    return json_response(answer, headers={POSITION_HEADER: reply.position})


async def get_blame(service: Service, caller: Caller, request: Request) -> JsonResponse[Blame]:
    return json_response(await service.application.definition_history.blame(caller, request.path_params["run_id"]))


def _optional_flag(request: Request, name: str) -> bool | None:
    value = query_text(request, name)
    if value not in ("", "true", "false"):
        raise bad_request(f"{name} is {value[:60]!r}: expected true or false")
    return value == "true" if value else None
