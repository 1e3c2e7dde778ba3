"""One order to many runs over HTTP.

Before: routes.py. After: services/commands/bulk.py.
"""

from starlette.requests import Request
from starlette.responses import Response

from services.api.answers import json_answer
from services.api.bodies import BulkBody
from services.api.reading import json_body
from services.api.service import Service
from services.commands.shapes import run_json
from services.core.access.decide import Caller

BODY_MAX = 64 * 1024


async def order(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, BulkBody, limit=BODY_MAX)
    said = {"action": body.action, "where": body.where}
    after = body.cursor or ""
    if body.dry_run is not False:
        found = await service.layer.bulk.preview(caller, body.action, body.where, after=after)
        runs = [run_json(row) for row in found.first]
        return json_answer({**said, "dry_run": True, "matched": found.matched, "more": found.more, "runs": runs})
    done = await service.layer.bulk.act(caller, body.action, body.where, body.reason or "", after=after)
    results = [
        {
            "run_id": one.run_id,
            "outcome": one.outcome,
            "position": one.position or None,
            "code": one.code or None,
            "error": one.error or None,
        }
        for one in done.results
    ]
    return json_answer({**said, "dry_run": False, "results": results, "next": done.next or None})
