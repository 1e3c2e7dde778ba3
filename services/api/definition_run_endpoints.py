"""The runs of a version, and blame, over HTTP.

Before: definition_run_routes.py. After: services/application/definition_runs.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import query_integer, query_text
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.definition_json import Blame, DefinitionRuns
from loomlog.services.application.queries.run_filters import parse_statuses
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.core.access.decide import Caller

CURSOR_MAX = 1_024


async def list_definition_runs(service: Service, caller: Caller, request: Request) -> JsonResponse[DefinitionRuns]:
    page = await service.application.definition_runs.runs(
        caller,
        request.path_params["def_id"],
        statuses=parse_statuses(query_text(request, "status") or "all"),
        tenant=query_text(request, "tenant"),
        limit=query_integer(request, "limit", limits.LIST_DEFAULT, minimum=1, maximum=limits.LIST_MAX),
        after=query_text(request, "cursor", max_length=CURSOR_MAX),
    )
    topic = service.application.barrier.topic
    return json_response({"runs": [run_json(row, topic) for row in page.rows], "next": page.next or None})


async def get_blame(service: Service, caller: Caller, request: Request) -> JsonResponse[Blame]:
    return json_response(await service.application.definition_runs.blame(caller, request.path_params["run_id"]))
