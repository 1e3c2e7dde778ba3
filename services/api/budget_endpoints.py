"""Spending limits and usage over HTTP, in the formats of reference surfaces 1.8; fields that we add are additive.

Limits count tokens, as clients know them; `soft_limit_micros` and `hard_limit_micros` limit money, in millionths of the
currency, and are never exceeded. `cost` is a number for people to read; `cost_micros` is the exact one.

Before: routes.py. After: services/application/admin/budget_limits.py.
"""

from starlette.requests import Request
from starlette.responses import Response

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.request_parsing import json_body, query_text
from loomlog.services.api.responses import POSITION_HEADER, JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.admin.budget_limits import LimitRequest, LimitView
from loomlog.services.application.answers.policies import Limit, LimitList, UsageReport
from loomlog.services.application.bodies.models import LimitBody
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.times import parse_time_ms

BODY_MAX = 64 * 1024
DEFAULT_GROUP_BY = "tenant,source"
"""Grouping of usage when the request names none."""


async def list_limits(service: Service, caller: Caller, request: Request) -> JsonResponse[LimitList]:
    views = await service.application.budgets.limits(caller, query_text(request, "tenant"))
    return json_response({"limits": [_limit_json(view) for view in views]})


async def set_limit(service: Service, caller: Caller, request: Request) -> JsonResponse[Limit]:
    body = await json_body(request, LimitBody, limit=BODY_MAX)
    limit_request = LimitRequest(
        scope=body.scope,
        tenant=body.tenant_id or None,
        scope_id=body.scope_id or "",
        soft_tokens=body.soft_limit,
        hard_tokens=body.hard_limit,
        soft_micros=body.soft_limit_micros,
        hard_micros=body.hard_limit_micros,
        strict=bool(body.strict),
    )
    currency = service.configuration.pricing.currency
    view, position = await service.application.budgets.set(caller, limit_request, currency=currency)
    return json_response(_limit_json(view), headers={POSITION_HEADER: position})


async def remove_limit(service: Service, caller: Caller, request: Request) -> Response:
    position = await service.application.budgets.remove(
        caller, query_text(request, "scope"), query_text(request, "tenant") or None, query_text(request, "scope_id")
    )
    return Response(status_code=204, headers={POSITION_HEADER: position} if position else None)


async def report_usage(service: Service, caller: Caller, request: Request) -> JsonResponse[UsageReport]:
    group_by = [
        name.strip() for name in (query_text(request, "group_by") or DEFAULT_GROUP_BY).split(",") if name.strip()
    ]
    times = {name: query_text(request, name) for name in ("from", "to")}
    rows = await service.application.budgets.usage(
        caller,
        group_by,
        tenant=query_text(request, "tenant"),
        since_ms=parse_time_ms("from", times["from"]) if times["from"] else None,
        until_ms=parse_time_ms("to", times["to"]) if times["to"] else None,
    )
    return json_response({"group_by": group_by, "from": times["from"] or None, "to": times["to"] or None, "rows": rows})


def _limit_json(view: LimitView) -> Limit:
    limit, account = view.limit, view.account
    return {
        "tenant_id": limit.tenant,
        "scope": limit.scope,
        "scope_id": limit.scope_id,
        "soft_limit": limit.soft_tokens,
        "hard_limit": limit.hard_tokens,
        "used": account.used_tokens,
        "reserved": account.reserved_tokens,
        "strict": limit.strict,
        "soft_limit_micros": limit.soft_micros,
        "hard_limit_micros": limit.hard_micros,
        "used_micros": account.used_micros,
        "reserved_micros": account.reserved_micros,
        "currency": limit.currency or None,
        "updated_at": format_rfc3339(limit.at_ms),
        "updated_by": limit.by,
    }
