"""Dead letters over HTTP.

Before: log_routes.py. After: services/application/log/dead_letters.py.
"""

from starlette.requests import Request

from loomlog.services.api.log_endpoints import OFFSET_MAX, path_number
from loomlog.services.api.request_parsing import CONTROL_BODY_MAX, json_body, query_integer, query_text
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.bodies.models import AcknowledgeLetterBody, ReplayLetterBody
from loomlog.services.application.errors import bad_request
from loomlog.services.application.log.dead_letters import LETTERS_DEFAULT, LETTERS_MAX, DeadLetterKind
from loomlog.services.application.log.json_types import (
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterReplay,
    DeadLetterSummary,
)
from loomlog.services.core.access.decide import Caller


async def list_dead_letters(service: Service, caller: Caller, request: Request) -> JsonResponse[DeadLetterList]:
    kind = query_text(request, "kind")
    kinds = [one.value for one in DeadLetterKind]
    if kind and kind not in kinds:
        raise bad_request(f"kind is {kind[:60]!r}: expected {', '.join(kinds)}")
    has_cursor = bool(request.query_params.get("cursor"))
    page = await service.application.dead_letters.list(
        caller,
        kind=kind,
        before=query_integer(request, "cursor", 0, minimum=0, maximum=OFFSET_MAX) if has_cursor else None,
        limit=query_integer(request, "limit", LETTERS_DEFAULT, minimum=1, maximum=LETTERS_MAX),
    )
    return json_response(page)


async def get_dead_letter(service: Service, caller: Caller, request: Request) -> JsonResponse[DeadLetterDetail]:
    return json_response(await service.application.dead_letters.get(caller, path_number(request, "offset")))


async def replay_dead_letter(service: Service, caller: Caller, request: Request) -> JsonResponse[DeadLetterReplay]:
    body = await json_body(request, ReplayLetterBody, limit=CONTROL_BODY_MAX, optional=True)
    offset = path_number(request, "offset")
    return json_response(await service.application.dead_letters.replay(caller, offset, allow_repeat=bool(body.again)))


async def acknowledge_dead_letter(
    service: Service, caller: Caller, request: Request
) -> JsonResponse[DeadLetterSummary]:
    body = await json_body(request, AcknowledgeLetterBody, limit=CONTROL_BODY_MAX, optional=True)
    offset = path_number(request, "offset")
    return json_response(await service.application.dead_letters.acknowledge(caller, offset, reason=body.reason))
