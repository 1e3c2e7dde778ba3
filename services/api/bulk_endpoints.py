"""One action on many runs over HTTP.

Before: routes.py. After: services/application/runs/bulk.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import json_body
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application.answers.runs import BulkAction, BulkResult
from loomlog.services.application.bodies.models import BulkBody
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.core.access.decide import Caller

BODY_MAX = 64 * 1024


async def apply_bulk_action(service: Service, caller: Caller, request: Request) -> JsonResponse[BulkAction]:
    body = await json_body(request, BulkBody, limit=BODY_MAX)
    after = body.cursor or ""
    if body.dry_run is not False:
        preview = await service.application.bulk.preview(caller, body.action, body.where, after=after)
        runs = [run_json(row, service.application.barrier.topic) for row in preview.first]
        return json_response(
            {
                "action": body.action,
                "where": body.where,
                "dry_run": True,
                "matched": preview.matched,
                "more": preview.has_more,
                "runs": runs,
            }
        )
    done = await service.application.bulk.act(caller, body.action, body.where, body.reason or "", after=after)
    results: list[BulkResult] = [
        {
            "run_id": one.run_id,
            "outcome": one.outcome,
            "position": one.position or None,
            "code": one.code or None,
            "error": one.error or None,
        }
        for one in done.results
    ]
    return json_response(
        {"action": body.action, "where": body.where, "dry_run": False, "results": results, "next": done.next or None},
        headers=position_headers(*(one.position for one in done.results)),
    )
