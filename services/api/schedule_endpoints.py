"""Schedules over HTTP, in the formats of reference surfaces 1.9; and what is new: instants ahead and fires.

Before: schedule_routes.py. After: services/application/schedules.py.
"""

from typing import Any

from starlette.requests import Request

from loomlog.services.api.request_parsing import query_flag, query_integer, query_text
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.service import Service
from loomlog.services.application.schedules import FIRES_DEFAULT, FIRES_MAX, PREVIEW_DEFAULT, PREVIEW_MAX
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.times import parse_time_ms

CURSOR_MAX = 1_024
Json = JsonResponse[dict[str, Any]]


def _id(request: Request) -> str:
    def_id: str = request.path_params["def_id"]
    return def_id


async def list_schedules(service: Service, caller: Caller, request: Request) -> Json:
    listed = await service.application.schedules.list_all(
        caller, tenant=query_text(request, "tenant"), with_state=query_flag(request, "with_state")
    )
    return json_response(listed)


async def preview_times(service: Service, caller: Caller, request: Request) -> Json:
    count = query_integer(request, "count", PREVIEW_DEFAULT, minimum=1, maximum=PREVIEW_MAX)
    times, zone = query_text(request, "times", tabs=True), query_text(request, "timezone")
    return json_response(service.application.schedules.preview_times(caller, times, timezone=zone, count=count))


async def get_schedule_state(service: Service, caller: Caller, request: Request) -> Json:
    return json_response(await service.application.schedules.state(caller, _id(request)))


async def preview_schedule(service: Service, caller: Caller, request: Request) -> Json:
    count = query_integer(request, "count", PREVIEW_DEFAULT, minimum=1, maximum=PREVIEW_MAX)
    return json_response(await service.application.schedules.preview(caller, _id(request), count=count))


async def list_schedule_fires(service: Service, caller: Caller, request: Request) -> Json:
    page = await service.application.schedules.fires(
        caller,
        _id(request),
        limit=query_integer(request, "limit", FIRES_DEFAULT, minimum=1, maximum=FIRES_MAX),
        cursor=query_text(request, "cursor", max_length=CURSOR_MAX),
    )
    return json_response(page)


async def run_schedule_now(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.schedules.run_now(caller, _id(request))
    return json_response(answer, headers=position_headers(position))


async def pause_schedule(service: Service, caller: Caller, request: Request) -> Json:
    text = query_text(request, "until")
    until_ms = parse_time_ms("until", text) if text else 0
    answer, position = await service.application.schedules.pause(caller, _id(request), until_ms=until_ms)
    return json_response(answer, headers=position_headers(position))


async def resume_schedule(service: Service, caller: Caller, request: Request) -> Json:
    answer, position = await service.application.schedules.resume(caller, _id(request))
    return json_response(answer, headers=position_headers(position))
