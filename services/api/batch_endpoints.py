"""Many runs in one request, and resident sub-agents, over HTTP. Formats as in reference surfaces 1.1 and 1.2.

Before: routes.py. After: services/application/runs/batch.py, control.py, queries/runs.py.
"""

from starlette.requests import Request

from loomlog.projections.run_queries import RunFilter
from loomlog.services.api.request_parsing import json_body, query_integer, query_text
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import (
    Batch,
    ResidentClosed,
    ResidentList,
    ResidentTurnCancelled,
    SpawnResult,
)
from loomlog.services.application.bodies.models import BatchBody, ReasonBody, to_run_request
from loomlog.services.application.queries.run_json import resident_json
from loomlog.services.application.runs.batch import SpawnOutcome
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


async def list_residents(service: Service, caller: Caller, request: Request) -> JsonResponse[ResidentList]:
    page = await service.application.queries.runs(
        caller,
        RunFilter(statuses=frozenset({"running"}), resident=True),
        tenant=query_text(request, "tenant"),
        limit=query_integer(request, "limit", limits.LIST_MAX, minimum=1, maximum=limits.LIST_MAX),
        after=query_text(request, "cursor", max_length=1_024),
    )
    return json_response({"residents": [resident_json(row) for row in page.rows], "next": page.next or None})


async def close_resident(service: Service, caller: Caller, request: Request) -> JsonResponse[ResidentClosed]:
    body = await json_body(request, ReasonBody, limit=BODY_MAX, optional=True)
    result = await service.application.control.close_resident(caller, request.path_params["run_id"], body.reason or "")
    answer: ResidentClosed = {
        "child_run_id": result.run_id,
        "state": "closed" if result.reason == "closed" else result.status,
        "closed": True,
    }
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def cancel_resident(service: Service, caller: Caller, request: Request) -> JsonResponse[ResidentTurnCancelled]:
    """Cancel the current turn; the child run continues to exist."""
    body = await json_body(request, ReasonBody, limit=BODY_MAX, optional=True)
    run_id = request.path_params["run_id"]
    await service.application.control.check_resident(caller, run_id)
    result = await service.application.interrupts.cancel_turn(caller, run_id, body.reason or "")
    answer: ResidentTurnCancelled = {
        "child_run_id": result.run_id,
        "state": "awaiting_input" if result.parked else "running",
        "cancelled": True,
    }
    return json_response(answer, headers={POSITION_HEADER: result.position})


def outcome_json(outcome: SpawnOutcome) -> SpawnResult:
    """Return one result of a batch as JSON; missing values are null."""
    return {
        "agent_id": outcome.agent_id or None,
        "run_id": outcome.run_id or None,
        "session_id": outcome.session_id or None,
        "status": outcome.status,
        "stop_reason": outcome.stop_reason or None,
        "final_text": outcome.final_text,
        "usage": outcome.usage,
        "error": outcome.error or None,
        "error_code": outcome.error_code or None,
        "limits": outcome.limits,
        "parent_context": outcome.parent_context or None,
        "position": outcome.position or None,
    }
