"""The messages of a channel as server-sent events.

Before: channel_routes.py. After: services/application/channel_streams.py.
"""

from starlette.requests import Request

from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.request_parsing import query_text
from loomlog.services.api.route import AsgiResponse
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def follow_channel(service: Service, caller: Caller, request: Request) -> AsgiResponse:
    cursor = request.headers.get("last-event-id") or query_text(request, "from_cursor")
    stream = await service.application.channel_streams.follow(
        caller,
        request.path_params["name"],
        scope_id=query_text(request, "scope_id"),
        from_cursor=cursor,
        tenant=query_text(request, "tenant"),
    )
    return EventStream(stream, with_ids=True)
