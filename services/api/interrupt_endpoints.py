"""Questions of runs to people over HTTP, and the end of a turn. Shapes as in reference surfaces 1.1.

Before: routes.py. After: services/application/runs/interrupts.py.
"""

from starlette.requests import Request
from starlette.responses import Response

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.request_models import CancelBody, InterruptBody
from loomlog.services.api.request_parsing import integer, json_body, text
from loomlog.services.api.responses import POSITION_HEADER, json_response
from loomlog.services.api.run_endpoints import CONTROL_BODY_MAX, position_of, user_name
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.queries.run_json import interrupt_json
from loomlog.services.application.runs import interrupts
from loomlog.services.application.runs.interrupts import InterruptList
from loomlog.services.core.access.decide import Caller


async def resolve(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, InterruptBody, limit=CONTROL_BODY_MAX)
    response = interrupts.InterruptResponse(
        kind=body.kind or "question",
        disposition=body.disposition or interrupts.ANSWER,
        answer=body.answer or "",
        resolved_by=body.resolved_by or "",
    )
    found = await service.layer.interrupts.resolve(
        caller, request.path_params["run_id"], request.path_params["interrupt_id"], response
    )
    answer = {
        "interrupt_id": found.interrupt_id,
        "status": found.status,
        "resolved_at": format_rfc3339(found.resolved_at_ms),
    }
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def cancel_turn(service: Service, caller: Caller, request: Request) -> Response:
    body = await json_body(request, CancelBody, limit=CONTROL_BODY_MAX, optional=True)
    found = await service.layer.interrupts.cancel_turn(caller, request.path_params["run_id"], body.reason or "")
    answer = {"run_id": found.run_id, "stopped": True, "parked": found.parked}
    return json_response(answer, headers={POSITION_HEADER: found.position})


async def list_of_run(service: Service, caller: Caller, request: Request) -> Response:
    return _result_json(
        await service.layer.interrupts.of_run(
            caller, request.path_params["run_id"], status=text(request, "status"), position=position_of(request)
        )
    )


async def list_of_user(service: Service, caller: Caller, request: Request) -> Response:
    return await _of_all(service, caller, request, user_name("user_id", request.path_params["user_id"]))


async def list_all(service: Service, caller: Caller, request: Request) -> Response:
    return await _of_all(service, caller, request, user_name("user_id", text(request, "user_id")))


async def _of_all(service: Service, caller: Caller, request: Request, user_id: str) -> Response:
    return _result_json(
        await service.layer.interrupts.of_all(
            caller,
            user_id=user_id,
            status=text(request, "status"),
            limit=integer(request, "limit", limits.LIST_MAX, least=1, most=limits.LIST_MAX),
            after=text(request, "cursor", longest=1_024),
        )
    )


def _result_json(found: InterruptList) -> Response:
    return json_response(
        {"interrupts": [interrupt_json(row) for row in found.rows], "total": found.total, "next": found.next or None}
    )
