"""The routes of the process and of models: health, the caller's identity, partitions and live figures, model routing
and model availability.

Before: routes.py. After: operator_endpoints.py and those beside it.
"""

from loomlog.services.api import (
    agent_endpoints,
    configuration_endpoints,
    insights_endpoints,
    operator_endpoints,
    partition_endpoints,
)
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import LIMIT_PARAMETER, POSITIVE_INTEGER, QueryParameter, Route
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC, own_data, requires
from loomlog.services.core.access.scopes import ADMIN, RUNS_READ, TENANT_READ

OPERATOR_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/healthz",
        access=PUBLIC,
        handler=operator_endpoints.get_health,
        summary="Liveness of this process.",
    ),
    Route(
        method="GET",
        path="/readyz",
        access=PUBLIC,
        handler=operator_endpoints.get_readiness,
        summary="Readiness of this process; otherwise 503 and the missing dependencies.",
    ),
    Route(
        method="GET",
        path="/metrics",
        access=requires(ADMIN),
        handler=operator_endpoints.get_metrics,
        refusal_statuses=(404,),
        summary="Metrics in Prometheus' text format.",
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/v1/_me",
        access=ANY_CALLER,
        handler=operator_endpoints.get_caller,
        summary="Get the principal of the token.",
    ),
    Route(
        method="GET",
        path="/v1/_projections",
        access=requires(ADMIN),
        handler=operator_endpoints.get_projections,
        summary="Get the lag of the read models: cursors, ends of the log, projectors, unprojected records.",
    ),
    Route(
        method="GET",
        path="/v1/_projections/problems",
        access=requires(ADMIN),
        handler=operator_endpoints.list_projection_problems,
        summary="List the records that could not be projected, and the aggregates that are quarantined.",
        query=(LIMIT_PARAMETER,),
    ),
    Route(
        method="GET",
        path="/v1/_partitions",
        access=requires(ADMIN),
        handler=partition_endpoints.list_partitions,
        summary="List the partitions of the events topics: owners, their newest take-overs, ends and cursors.",
        query=(
            QueryParameter(
                name="takeovers", description="Most take-overs of a partition, newest first.", schema=POSITIVE_INTEGER
            ),
        ),
    ),
    Route(
        method="GET",
        path="/v1/_insights",
        access=requires(ADMIN),
        handler=insights_endpoints.get_insights,
        summary="Get the live figures of the last minutes, as insights has them: runs, tokens, errors, latencies.",
    ),
    Route(
        method="GET",
        path="/v1/_routing",
        access=requires(TENANT_READ),
        handler=operator_endpoints.get_routing,
        summary="Get the models of plans and tiers.",
    ),
    Route(
        method="GET",
        path="/v1/_models",
        access=requires(TENANT_READ),
        handler=operator_endpoints.list_model_aliases,
        summary="List the model aliases of the configuration.",
    ),
    Route(
        method="GET",
        path="/v1/_providers/{provider_id}/models",
        access=requires(ADMIN),
        handler=operator_endpoints.list_provider_models,
        refusal_statuses=(502,),
        summary="List the models of a provider, as it reports them now.",
    ),
    Route(
        method="GET",
        path="/v1/_resolver",
        access=requires(ADMIN),
        handler=operator_endpoints.get_resolver,
        summary="Get the availability of providers and models.",
    ),
    Route(
        method="POST",
        path="/v1/_resolve/probe",
        access=requires(ADMIN),
        handler=operator_endpoints.probe_providers,
        takes_instead=Takes.WAIT,
        summary="Probe all providers now; answers as /v1/_resolver.",
    ),
    Route(
        method="GET",
        path="/v1/_runnable-agents",
        access=own_data(RUNS_READ),
        handler=agent_endpoints.list_runnable_agents,
        summary="List the agents that may be run.",
    ),
    Route(
        method="GET",
        path="/v1/_runnable-agents/{name}",
        access=requires(TENANT_READ),
        handler=agent_endpoints.get_runnable_agent,
        summary="Get an agent with its definition.",
    ),
    Route(
        method="GET",
        path="/v1/_presets",
        access=requires(ADMIN),
        handler=configuration_endpoints.list_presets,
        summary="List the configuration layers that come with the program.",
    ),
    Route(
        method="GET",
        path="/v1/_presets/{name}",
        access=requires(ADMIN),
        handler=configuration_endpoints.get_preset,
        summary="Get a configuration layer with its YAML.",
    ),
    Route(
        method="GET",
        path="/v1/_env_template",
        access=requires(ADMIN),
        handler=configuration_endpoints.get_env_template,
        summary="Get a commented file of all environment variables with their defaults.",
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/v1/_concurrency/stats",
        access=requires(ADMIN),
        handler=operator_endpoints.get_concurrency,
        summary="Count active runs, by user and provider.",
    ),
)
