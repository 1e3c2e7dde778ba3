"""The one table of routes: method, path, required access, and the description for the OpenAPI document.

Only routes in this table exist, and a route without access is an error at startup: every row names a scope, or allows
any known caller, or is public. The registration, the check of the caller and the document follow from the table; a test
compares it with what the application serves.

Routes are matched in this order, so the busiest come first.

Before: app.py. After: run_routes.py and the tables next to it, operation_routes.py and endpoint_routes.py for families,
then the endpoints.
"""

from collections.abc import Sequence

from loomlog.services.api import client_endpoints, ui_endpoints
from loomlog.services.api.data_routes import DATA_ROUTES
from loomlog.services.api.endpoint_routes import endpoint_routes
from loomlog.services.api.history_routes import HISTORY_ROUTES
from loomlog.services.api.mcp.routes import MCP_ROUTES
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.operator_routes import OPERATOR_ROUTES
from loomlog.services.api.route import Route
from loomlog.services.api.run_routes import RUN_ROUTES
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC, own_data
from loomlog.services.core.access.scopes import RUNS_CREATE
from loomlog.services.families.registry import all_endpoints

ROUTES: tuple[Route, ...] = (
    *RUN_ROUTES,
    *HISTORY_ROUTES,
    *OPERATOR_ROUTES,
    Route(
        route="GET /v1/client-tools",
        access=own_data(RUNS_CREATE),
        handler=client_endpoints.connect_client,
        refusal_statuses=(403, 426),
        socket_handler=client_endpoints.connect,
        summary="Connect a WebSocket over which a client offers tools and executes the calls of its own runs.",
        status=101,
    ),
    *DATA_ROUTES,
    *endpoint_routes(all_endpoints()),
    *operation_routes(product_operations()),
    *MCP_ROUTES,
    # The page itself is no row: ui_page.py serves its files and every address below /ui.
    Route(
        route="POST /ui/session",
        access=ANY_CALLER,
        handler=ui_endpoints.sign_in,
        status=204,
        summary="Sign in to the web page: the token of the Authorization header becomes a cookie.",
    ),
    Route(
        route="POST /ui/logout",
        access=PUBLIC,
        handler=ui_endpoints.sign_out,
        status=204,
        summary="Sign out of the web page: clear the cookie.",
    ),
    Route(
        route="GET /ui/login-config.json",
        access=PUBLIC,
        handler=ui_endpoints.get_login_config,
        summary="Get what the sign-in page and `loomlog login` need: ways to sign in, and pages that may pass a token.",
    ),
)


def check_routes(routes: Sequence[Route]) -> None:
    """Assert that no two rows are one route or have one operation id: a family could be called like a fixed route."""
    for kind, names in (
        ("route", [f"{route.method} {route.path}" for route in routes]),
        ("operation id", [route.operation_id for route in routes]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"more than one {kind} {', '.join(twice)}: rename the family"
