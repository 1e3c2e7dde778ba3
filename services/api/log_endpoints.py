"""The log for operators over HTTP: topics and their records.

Before: log_routes.py. After: services/application/log/browser.py.
"""

from starlette.requests import Request

from loomlog.services.api.request_parsing import INTEGER_DIGITS_MAX, query_integer, query_text
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.errors import bad_request
from loomlog.services.application.log.browser import RECORDS_DEFAULT, RECORDS_MAX, TAIL_MAX, RecordQuery
from loomlog.services.application.log.json_types import LogPage, LogTopicList
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms

OFFSET_MAX = 10**INTEGER_DIGITS_MAX - 1
CURSOR_CHARACTERS_MAX = 1_024


async def list_topics(service: Service, caller: Caller, request: Request) -> JsonResponse[LogTopicList]:
    return json_response(await service.application.log.topics(caller))


async def list_records(service: Service, caller: Caller, request: Request) -> JsonResponse[LogPage]:
    """List records of a partition; `from` is an offset when it is a number, and a time otherwise."""
    since, has_tail = query_text(request, "from"), bool(request.query_params.get("tail"))
    if since and has_tail:
        raise bad_request("from and tail both say where to begin: leave one out")
    is_offset = since.isascii() and since.isdecimal()
    query = RecordQuery(
        topic=request.path_params["topic"],
        partition=path_number(request, "partition"),
        from_offset=query_integer(request, "from", 0, minimum=0, maximum=OFFSET_MAX) if is_offset else None,
        from_ms=parse_time_ms("from", since) if since and not is_offset else None,
        tail=query_integer(request, "tail", 1, minimum=1, maximum=TAIL_MAX) if has_tail else None,
        type=query_text(request, "type"),
        run_id=query_text(request, "run_id", max_length=CURSOR_CHARACTERS_MAX),
        limit=query_integer(request, "limit", RECORDS_DEFAULT, minimum=1, maximum=RECORDS_MAX),
        cursor=query_text(request, "cursor", max_length=CURSOR_CHARACTERS_MAX),
    )
    return json_response(await service.application.log.records(caller, query))


def path_number(request: Request, name: str) -> int:
    """Return a number of the path. Raises Refused(not_found)."""
    text = request.path_params[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= INTEGER_DIGITS_MAX):
        raise Refused("not_found", f"there is no {name} {text[:40]!r}: expected a number from 0 on")
    return int(text)
