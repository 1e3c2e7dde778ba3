"""Repair of quarantined aggregates over HTTP.

Before: routes.py. After: services/application/admin/repair.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import json_body, query_text
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.policies import AggregateRepaired, FoldedAggregate
from loomlog.services.application.bodies.models import RepairBody
from loomlog.services.core.access.decide import Caller

BODY_MAX = 2 * 1024 * 1024
"""Bytes of a request: a state has at most STATE_BYTES_MAX, and twice as many when it is indented."""


async def show_aggregate(service: Service, caller: Caller, request: Request) -> JsonResponse[FoldedAggregate]:
    view = await service.application.repairs.show(caller, query_text(request, "aggregate"))
    return json_response(
        {
            "aggregate": view.aggregate,
            "seq": view.seq,
            "quarantine": view.quarantine or None,
            "state": view.state,
            "position": view.position,
        }
    )


async def repair_aggregate(service: Service, caller: Caller, request: Request) -> JsonResponse[AggregateRepaired]:
    body = await json_body(request, RepairBody, limit=BODY_MAX)
    position = await service.application.repairs.repair(
        caller, body.aggregate, state=body.state, reason=body.reason or ""
    )
    return json_response({"aggregate": body.aggregate, "position": position}, headers={POSITION_HEADER: position})
