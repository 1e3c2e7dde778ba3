"""Interruptions (questions of runs to people) over HTTP, and cancelling a turn. Formats as in reference surfaces 1.1.

Before: routes.py. After: services/application/runs/interrupts.py.
"""

from starlette.requests import Request

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.request_models import CancelBody, InterruptBody
from loomlog.services.api.request_parsing import (
    CONTROL_BODY_MAX,
    json_body,
    query_integer,
    query_text,
)
from loomlog.services.api.response_models import InterruptList, InterruptResolved, TurnCancelled
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.run_endpoints import parse_user_id
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.queries.run_json import interrupt_json
from loomlog.services.application.runs import interrupts
from loomlog.services.core.access.decide import Caller


async def resolve_interrupt(service: Service, caller: Caller, request: Request) -> JsonResponse[InterruptResolved]:
    body = await json_body(request, InterruptBody, limit=CONTROL_BODY_MAX)
    response = interrupts.InterruptResponse(
        kind=body.kind or "question",
        disposition=body.disposition or interrupts.ANSWER,
        answer=body.answer or "",
        resolved_by=body.resolved_by or "",
    )
    result = await service.application.interrupts.resolve(
        caller, request.path_params["run_id"], request.path_params["interrupt_id"], response
    )
    answer: InterruptResolved = {
        "interrupt_id": result.interrupt_id,
        "status": result.status,
        "resolved_at": format_rfc3339(result.resolved_at_ms),
    }
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def cancel_turn(service: Service, caller: Caller, request: Request) -> JsonResponse[TurnCancelled]:
    body = await json_body(request, CancelBody, limit=CONTROL_BODY_MAX, optional=True)
    result = await service.application.interrupts.cancel_turn(caller, request.path_params["run_id"], body.reason or "")
    answer: TurnCancelled = {"run_id": result.run_id, "stopped": True, "parked": result.parked}
    return json_response(answer, headers={POSITION_HEADER: result.position})


async def list_run_interrupts(service: Service, caller: Caller, request: Request) -> JsonResponse[InterruptList]:
    return _list_response(
        await service.application.interrupts.list_of_run(
            caller,
            request.path_params["run_id"],
            status=query_text(request, "status"),
        )
    )


async def list_user_interrupts(service: Service, caller: Caller, request: Request) -> JsonResponse[InterruptList]:
    return await _list_all(service, caller, request, parse_user_id("user_id", request.path_params["user_id"]))


async def list_interrupts(service: Service, caller: Caller, request: Request) -> JsonResponse[InterruptList]:
    return await _list_all(service, caller, request, parse_user_id("user_id", query_text(request, "user_id")))


async def _list_all(service: Service, caller: Caller, request: Request, user_id: str) -> JsonResponse[InterruptList]:
    return _list_response(
        await service.application.interrupts.list_all(
            caller,
            user_id=user_id,
            status=query_text(request, "status"),
            limit=query_integer(request, "limit", limits.LIST_MAX, minimum=1, maximum=limits.LIST_MAX),
            after=query_text(request, "cursor", max_length=1_024),
        )
    )


def _list_response(page: interrupts.InterruptList) -> JsonResponse[InterruptList]:
    return json_response(
        {"interrupts": [interrupt_json(row) for row in page.rows], "total": page.total, "next": page.next or None}
    )
