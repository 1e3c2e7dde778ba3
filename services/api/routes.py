"""The one table of routes: method, path, required access, and the description for the OpenAPI document.

Only routes in this table exist, and a route without access is an error at startup: every row names a scope, or allows
any known caller, or is public. The registration, the check of the caller and the document follow from the table; a test
compares it with what the application serves.

Routes are matched in this order, so the busiest come first.

Before: app.py. After: run_routes.py and the tables next to it, then the endpoints.
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
