"""The feeds of changes over HTTP, as server-sent events.

Before: memory_feed_routes.py. After: services/application/memory_changes.py.
"""

from collections.abc import Collection

from starlette.requests import Request

from loomlog.projections.memory_feed.tables import DOCUMENT_TYPES, MEMORY_TYPES
from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import INTEGER_DIGITS_MAX, query_text
from loomlog.services.api.route import AsgiResponse
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def watch_memory_changes(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    return await _watch(service, caller, request, MEMORY_TYPES)


async def watch_document_changes(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    return await _watch(service, caller, request, DOCUMENT_TYPES)


async def _watch(service: Service, caller: Caller, request: Request, types: Collection[str]) -> AsgiResponse:
    since, tenant = _since(request), query_text(request, "tenant")
    stream = await service.application.memory_changes.follow(caller, types, since=since, tenant=tenant)
    return EventStream(stream, with_ids=True)


def _since(request: Request) -> int:
    """Return the seq after which the feed resumes: Last-Event-ID (sent on reconnect), else since; 0 if not a number."""
    for value in (request.headers.get("last-event-id"), request.query_params.get("since")):
        if value is not None and value.isascii() and value.isdecimal() and len(value) <= INTEGER_DIGITS_MAX:
            return int(value)
    return 0
