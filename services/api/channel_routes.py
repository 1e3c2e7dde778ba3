"""The stream of a channel; its other routes are those of its operations (services/families/channel/api.py).

Before: routes.py. After: channel_endpoints.py.
"""

from loomlog.services.api import channel_endpoints
from loomlog.services.api.route import QueryParameter, Route, Tag
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import CHANNEL_READ
from loomlog.services.families.channel.api import CHANNEL, TAG

CHANNEL_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=CHANNEL + "/stream",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.follow_channel,
        tag=Tag(name=TAG.name, description=TAG.description),
        summary="Follow the messages as server-sent events, each with its cursor as id; no cursor moves.",
        is_stream=True,
        query=(
            QueryParameter(
                name="from_cursor",
                description="Cursor of an earlier answer; cur_0 or absent: before the oldest message.",
            ),
            QueryParameter(name="scope_id", description="The user or the agent, of a channel with that scope."),
            QueryParameter(name="tenant", description="Administrators: the tenant whose channels are meant."),
        ),
        refusal_statuses=(400, 404, 503),
    ),
)
