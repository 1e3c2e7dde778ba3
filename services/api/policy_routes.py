"""The routes of policies for many runs: client tools, spending and its limits.

Before: routes.py. After: client_endpoints.py, budget_endpoints.py.
"""

from loomlog.services.api import budget_endpoints, client_endpoints
from loomlog.services.api.route import TENANT_PARAMETER, QueryParameter, Route
from loomlog.services.application.bodies.models import LimitBody
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

POLICY_ROUTES: tuple[Route, ...] = (
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
    Route(
        method="GET",
        path="/v1/_usage",
        access=requires(RUNS_READ),
        handler=budget_endpoints.report_usage,
        summary="Report usage and cost over whole UTC days; rows are split by currency.",
        query=(
            QueryParameter(
                name="group_by", description="tenant, user, provider, model, source, agent, day with commas between."
            ),
            QueryParameter(name="from", description="From the day of this time (RFC 3339)."),
            QueryParameter(name="to", description="Before this time (RFC 3339); its day is included if it has begun."),
            TENANT_PARAMETER,
        ),
    ),
    Route(
        method="GET",
        path="/v1/_limits",
        access=requires(RUNS_READ),
        handler=budget_endpoints.list_limits,
        summary="List budget limits with their use in this month.",
        query=(TENANT_PARAMETER,),
    ),
    Route(
        method="PUT",
        path="/v1/_limits",
        access=requires(TENANT_SCOPE),
        handler=budget_endpoints.set_limit,
        summary="Set the monthly limits of the installation, a tenant or a user; replaces earlier ones.",
        body=LimitBody,
    ),
    Route(
        method="DELETE",
        path="/v1/_limits",
        access=requires(TENANT_SCOPE),
        handler=budget_endpoints.remove_limit,
        summary="Remove the limits of an account.",
        query=(
            QueryParameter(name="scope", description="operator, tenant or user."),
            QueryParameter(name="tenant", description="The caller's if absent."),
            QueryParameter(name="scope_id", description="The user."),
        ),
        status=204,
    ),
)
