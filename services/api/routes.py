"""The one table of routes: method, path, required access, and the description for the OpenAPI document.

Only routes in this table exist, and a route without access is an error at startup: every row names a scope, or allows
any known caller, or is public. The registration, the check of the caller and the document follow from the table; a test
compares it with what the application serves.

Routes are matched in this order, so the busiest come first.

Before: app.py. After: run_routes.py and the tables next to it, operation_routes.py and endpoint_routes.py for families,
then the endpoints.
"""

from collections.abc import Sequence

from loomlog.services.api.client_routes import CLIENT_ROUTES
from loomlog.services.api.data_routes import DATA_ROUTES
from loomlog.services.api.endpoint_routes import endpoint_routes
from loomlog.services.api.history_routes import HISTORY_ROUTES
from loomlog.services.api.mcp.routes import MCP_ROUTES
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.operator_routes import OPERATOR_ROUTES
from loomlog.services.api.route import Route
from loomlog.services.api.run_routes import RUN_ROUTES
from loomlog.services.api.ui_routes import UI_ROUTES
from loomlog.services.application.operations import product_operations
from loomlog.services.families.registry import all_endpoints

ROUTES: tuple[Route, ...] = (
    *RUN_ROUTES,
    *HISTORY_ROUTES,
    *OPERATOR_ROUTES,
    *CLIENT_ROUTES,
    *DATA_ROUTES,
    *endpoint_routes(all_endpoints()),
    *operation_routes(product_operations()),
    *MCP_ROUTES,
    *UI_ROUTES,
)


def check_routes(routes: Sequence[Route]) -> None:
    """Assert that no two rows are one route or have one operation id: a family could be called like a fixed route."""
    for kind, names in (
        ("route", [f"{route.method} {route.path}" for route in routes]),
        ("operation id", [route.operation_id for route in routes]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"more than one {kind} {', '.join(twice)}: rename the family"
