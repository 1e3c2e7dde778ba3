"""The routes of the process and of models: whether it is well, who is asking, where models go and how they are.

Before: routes.py. After: operator_endpoints.py.
"""

from loomlog.services.api import configuration_endpoints, operator_endpoints
from loomlog.services.api.route import Access, Route
from loomlog.services.core.access.scopes import ADMIN

OPERATOR_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/healthz",
        access=Access.PUBLIC,
        handler=operator_endpoints.healthz,
        summary="This process is alive.",
    ),
    Route(
        method="GET",
        path="/readyz",
        access=Access.PUBLIC,
        handler=operator_endpoints.readyz,
        summary="This process can serve; otherwise 503 and what is missing.",
    ),
    Route(
        method="GET",
        path="/metrics",
        access=ADMIN,
        handler=operator_endpoints.metrics,
        summary="Counts in Prometheus' text format.",
        response_schema="Text",
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/v1/_me",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.me,
        summary="Who the token belongs to.",
    ),
    Route(
        method="GET",
        path="/v1/_routing",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.routing_view,
        summary="Which models the plans and tiers go to.",
    ),
    Route(
        method="GET",
        path="/v1/_models",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.model_aliases,
        summary="Names of models in the configuration.",
    ),
    Route(
        method="GET",
        path="/v1/_providers/{provider_id}/models",
        access=ADMIN,
        handler=operator_endpoints.provider_models,
        summary="The models a provider lists at this moment.",
    ),
    Route(
        method="GET",
        path="/v1/_resolver",
        access=ADMIN,
        handler=operator_endpoints.resolver,
        summary="Providers, their models, and what calls and probes have shown of each.",
    ),
    Route(
        method="POST",
        path="/v1/_resolve/probe",
        access=ADMIN,
        handler=operator_endpoints.probe,
        summary="Have every provider probed now; answers as /v1/_resolver.",
    ),
    Route(
        method="GET",
        path="/v1/_presets",
        access=ADMIN,
        handler=configuration_endpoints.list_presets,
        summary="The configuration layers that come with the program.",
    ),
    Route(
        method="GET",
        path="/v1/_presets/{name}",
        access=ADMIN,
        handler=configuration_endpoints.show_preset,
        summary="One of them, with its YAML.",
    ),
    Route(
        method="GET",
        path="/v1/_env_template",
        access=ADMIN,
        handler=configuration_endpoints.template,
        summary="Every setting of the environment with its default, as a file to begin with.",
        response_schema="Text",
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/v1/_concurrency/stats",
        access=ADMIN,
        handler=operator_endpoints.concurrency,
        summary="How many runs are under way, by user and provider.",
    ),
)
