"""Interruptions (questions of runs to people) over HTTP, and cancelling a turn. Formats as in reference surfaces 1.1.

Before: routes.py. After: services/application/runs/interrupts.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import (
    CONTROL_BODY_MAX,
    json_body,
)
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.runs import TurnCancelled
from loomlog.services.application.bodies.models import CancelBody
from loomlog.services.core.access.decide import Caller


async def cancel_turn(service: Service, caller: Caller, request: Request) -> JsonResponse[TurnCancelled]:
    body = await json_body(request, CancelBody, limit=CONTROL_BODY_MAX, optional=True)
    result = await service.application.interrupts.cancel_turn(caller, request.path_params["run_id"], body.reason or "")
    answer: TurnCancelled = {"run_id": result.run_id, "stopped": True, "parked": result.parked}
    return json_response(answer, headers={POSITION_HEADER: result.position})
