"""Many runs in one request, and resident sub-agents, over HTTP. Formats as in reference surfaces 1.1 and 1.2.

Before: routes.py. After: services/application/runs/batch.py, control.py, queries/runs.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import json_body
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import Batch
from loomlog.services.application.bodies.models import BatchBody, to_run_request
from loomlog.services.application.runs.batch import outcome_json
from loomlog.services.core.access.decide import Caller

BODY_MAX = 64 * 1024


async def start_batch(service: Service, caller: Caller, request: Request) -> JsonResponse[Batch]:
    body = await json_body(request, BatchBody, limit=limits.BATCH_BYTES_MAX)
    traceparent = request.headers.get("traceparent", "")
    requests = [to_run_request(one, idempotency_key="", traceparent=traceparent) for one in body.spawns]
    key = request.headers.get("idempotency-key", "").strip()
    batches = service.application.batches
    if body.mode == "detach":
        outcomes, status = await batches.detach(caller, requests, key=key), 202
    else:
        outcomes, status = await batches.join(caller, requests, key=key, timeout_ms=body.timeout_ms or 0), 200
    spawned = sum(bool(outcome.run_id) for outcome in outcomes)
    return json_response(
        {"results": [outcome_json(one) for one in outcomes], "spawned": spawned},
        status=status,
        headers=position_headers(*(outcome.position for outcome in outcomes)),
    )
