"""The one table of routes: method, path, who may call it, and what the OpenAPI document says of it.

A route that is not in here does not exist, and a route in here without access is a mistake that does not start: every
row says either a scope, or that any known caller may, or that it is public. Everything else follows from the table: the
registration, the check of the caller, the document; a test compares it with what the application really serves.

Routes are matched in this order, so the busiest come first.

Before: app.py. After: run_routes.py and the tables beside it, then the endpoints.
"""

from loomlog.services.api.data_routes import DATA_ROUTES
from loomlog.services.api.history_routes import HISTORY_ROUTES
from loomlog.services.api.operator_routes import OPERATOR_ROUTES
from loomlog.services.api.policy_routes import POLICY_ROUTES
from loomlog.services.api.route import Route
from loomlog.services.api.run_routes import RUN_ROUTES

ROUTES: tuple[Route, ...] = (
    *RUN_ROUTES,
    *HISTORY_ROUTES,
    *OPERATOR_ROUTES,
    *POLICY_ROUTES,
    *DATA_ROUTES,
)
