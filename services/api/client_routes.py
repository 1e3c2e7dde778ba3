"""The route of clients that execute tools.

Before: routes.py. After: client_endpoints.py.
"""

from loomlog.services.api import client_endpoints
from loomlog.services.api.route import Route
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE

CLIENT_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/client-tools",
        access=own_data(RUNS_CREATE),
        handler=client_endpoints.connect_client,
        refusal_statuses=(403, 426),
        socket_handler=client_endpoints.connect,
        summary="Connect a WebSocket over which a client offers tools and executes the calls of its own runs.",
        status=101,
    ),
)
