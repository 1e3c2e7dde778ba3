"""The routes of operators that are no operations: health, metrics, a verification as a stream, a file of settings.

Before: routes.py. After: operator_endpoints.py, audit_endpoints.py, configuration_endpoints.py.
"""

from loomlog.services.api import audit_endpoints, configuration_endpoints, operator_endpoints
from loomlog.services.api.route import Route
from loomlog.services.application.bodies.models import VerifyBody
from loomlog.services.application.operations import streams
from loomlog.services.core.access.rules import PUBLIC, requires
from loomlog.services.core.access.scopes import ADMIN

OPERATOR_ROUTES: tuple[Route, ...] = (
    Route(
        route="GET /healthz", access=PUBLIC, handler=operator_endpoints.get_health, summary="Liveness of this process."
    ),
    Route(
        route="GET /readyz",
        access=PUBLIC,
        handler=operator_endpoints.get_readiness,
        summary="Readiness of this process; otherwise 503 and the missing dependencies.",
    ),
    Route(
        route="GET /metrics",
        access=requires(ADMIN),
        handler=operator_endpoints.get_metrics,
        refusal_statuses=(404,),
        summary="Metrics in Prometheus' text format.",
        media_type="text/plain",
    ),
    Route(
        route="GET /v1/_env_template",
        access=requires(ADMIN),
        handler=configuration_endpoints.get_env_template,
        summary="Get a commented file of all environment variables with their defaults.",
        media_type="text/plain",
    ),
    Route(
        route="POST /v1/_audit/verify",
        access=streams.VERIFY_LOG,
        handler=audit_endpoints.verify_log,
        summary="Verify the log, a part of it or a run: progress, then result or error; one at a time in a process.",
        body=VerifyBody,
        body_optional=True,
        is_stream=True,
        act="",  # it reads
    ),
)
