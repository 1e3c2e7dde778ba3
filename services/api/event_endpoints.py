"""The audit view over HTTP: the contents of the log, with offsets. After: services/application/queries/audit_log.py."""

from starlette.requests import Request

from loomlog.services.api.request_parsing import query_integer, query_text
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import EventList
from loomlog.services.application.queries.audit_log import EventQuery
from loomlog.services.application.queries.json_types import EventRecord
from loomlog.services.application.queries.run_json import event_json
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms

PARTITION_MAX = 100_000
OFFSET_MAX = 10**18


async def list_events(service: Service, caller: Caller, request: Request) -> JsonResponse[EventList]:
    """List events; `from` and `to` are offsets when they are numbers, and times otherwise."""
    since, until = query_text(request, "from"), query_text(request, "to")
    has_partition = bool(request.query_params.get("partition"))
    query = EventQuery(
        run_id=query_text(request, "run_id"),
        type=query_text(request, "type"),
        partition=query_integer(request, "partition", 0, minimum=0, maximum=PARTITION_MAX) if has_partition else None,
        from_offset=_parse_offset(request, "from", since),
        to_offset=_parse_offset(request, "to", until),
        from_ms=parse_time_ms("from", since) if since and not _is_offset(since) else None,
        to_ms=parse_time_ms("to", until) if until and not _is_offset(until) else None,
        limit=query_integer(request, "limit", limits.EVENTS_DEFAULT, minimum=1, maximum=limits.EVENTS_MAX),
        cursor=query_text(request, "cursor", max_length=1_024),
    )
    page = await service.application.audit_log.events(caller, query)
    events = [event_json(view) for view in page.events]
    return json_response({"events": events, "next": page.next or None, "resume": page.resume or None})


async def get_event(service: Service, caller: Caller, request: Request) -> JsonResponse[EventRecord]:
    topic = request.path_params["topic"]
    numbers = (request.path_params["partition"], request.path_params["offset"])
    if not all(number.isascii() and number.isdecimal() and len(number) <= 18 for number in numbers):
        raise Refused("not_found", "there is no such record: expected /v1/events/<topic>/<partition>/<offset>")
    view = await service.application.audit_log.record(caller, topic, int(numbers[0]), int(numbers[1]))
    return json_response(event_json(view))


def _is_offset(value: str) -> bool:
    return value.isascii() and value.isdecimal()


def _parse_offset(request: Request, name: str, value: str) -> int | None:
    return query_integer(request, name, 0, minimum=0, maximum=OFFSET_MAX) if value and _is_offset(value) else None
