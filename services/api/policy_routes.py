"""The routes of what holds for many runs: hooks, tools of clients, spending and its limits, pauses.

Before: routes.py. After: hook_endpoints.py, client_endpoints.py, budget_endpoints.py, pause_endpoints.py.
"""

from loomlog.services.api import budget_endpoints, client_endpoints, hook_endpoints, pause_endpoints
from loomlog.services.api.request_models import HookBody, LimitBody, PauseBody, ResumeBody
from loomlog.services.api.route import TENANT_PARAMETER, QueryParameter, Route
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

POLICY_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/hooks",
        access=TENANT_SCOPE,
        handler=hook_endpoints.register,
        summary="Register a hook: it is asked about tool calls before or after they are made.",
        body=HookBody,
        response_schema="HookMade",
    ),
    Route(
        method="GET",
        path="/v1/hooks",
        access=TENANT_SCOPE,
        handler=hook_endpoints.list_hooks,
        summary="The registered hooks, in the order in which they are asked.",
        response_schema="HookList",
    ),
    Route(
        method="DELETE",
        path="/v1/hooks/{hook_id}",
        access=TENANT_SCOPE,
        handler=hook_endpoints.remove,
        summary="Remove a hook; calls under way end with it.",
        response_schema="HookRemoved",
    ),
    Route(
        method="GET",
        path="/v1/client-tools",
        access=RUNS_CREATE,
        handler=client_endpoints.upgrade,
        socket_handler=client_endpoints.connect,
        summary="A WebSocket over which a client offers tools and carries out the calls of its own runs.",
        status=101,
    ),
    Route(
        method="GET",
        path="/v1/_usage",
        access=RUNS_READ,
        handler=budget_endpoints.usage,
        summary="What was used and what it cost, over whole UTC days; rows split by currency.",
        query=(
            QueryParameter(
                name="group_by", description="tenant, user, provider, model, source, agent, day with commas between."
            ),
            QueryParameter(name="from", description="From the day of this time on."),
            QueryParameter(name="to", description="Before this time; its day counts when it has begun."),
            TENANT_PARAMETER,
        ),
    ),
    Route(
        method="GET",
        path="/v1/_limits",
        access=RUNS_READ,
        handler=budget_endpoints.list_limits,
        summary="Limits on spending, and what is used of them this month.",
        query=(TENANT_PARAMETER,),
    ),
    Route(
        method="PUT",
        path="/v1/_limits",
        access=TENANT_SCOPE,
        handler=budget_endpoints.set_limit,
        summary="Limit what the installation, a tenant or a user spends in a month; replaces what was said before.",
        body=LimitBody,
    ),
    Route(
        method="DELETE",
        path="/v1/_limits",
        access=TENANT_SCOPE,
        handler=budget_endpoints.remove_limit,
        summary="Take the limits of an account away.",
        query=(
            QueryParameter(name="scope", description="operator, tenant or user."),
            QueryParameter(name="tenant", description="The caller's without it."),
            QueryParameter(name="scope_id", description="The user."),
        ),
        status=204,
    ),
    Route(
        method="GET",
        path="/v1/_state",
        access=ADMIN,
        handler=pause_endpoints.state,
        summary="Whether the installation runs or is paused, and what else is.",
    ),
    Route(
        method="POST",
        path="/v1/_pause",
        access=ADMIN,
        handler=pause_endpoints.pause_all,
        summary="Let everything, a tenant or an agent stand still; waits until it does, at most timeout_ms.",
        body=PauseBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path="/v1/_resume",
        access=ADMIN,
        handler=pause_endpoints.resume_all,
        summary="Let what was paused go on.",
        body=ResumeBody,
        body_optional=True,
    ),
)
