"""Health and metrics. Formats as in reference surfaces 1.9.

The two public endpoints reveal no secrets: /healthz reports the running version, /readyz which of the two dependencies
is missing. Dependency checks are bounded and shared, so that frequent probes do no harm.
"""

import asyncio
import time
from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from loomlog.connectors.errors import ConnectorError
from loomlog.services.api.metrics import CONTENT_TYPE
from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.application.answers.operators import Health, Readiness
from loomlog.services.application.errors import RETRY_LATER_S
from loomlog.services.application.queries.read_models import has_no_tables
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

CHECK_WAIT_S = 2.0
"""Seconds to wait for each dependency in a readiness check."""
CHECK_EVERY_S = 1.0
"""Seconds that a readiness result is cached; /readyz is public."""


async def get_health(service: Service, caller: Caller, request: Request) -> JsonResponse[Health]:
    return json_response(
        {
            "ok": True,
            "version": service.version,
            "commit": service.commit,
            "built": service.built,
            "uptime_seconds": round(time.monotonic() - service.started_at, 3),
            "metrics_enabled": service.metrics_enabled,
            "replica_id": service.replica_id,
            "replicas": [],
        }
    )


async def get_readiness(service: Service, caller: Caller, request: Request) -> JsonResponse[Readiness]:
    missing = sorted(await _missing_dependencies(service))
    if not missing:
        return json_response({"ready": True, "missing": []})
    error = f"the API does not reach: {', '.join(missing)}"
    return json_response(
        {"ready": False, "missing": missing, "code": "not_ready", "error": error},
        status=503,
        headers={"retry-after": str(RETRY_LATER_S)},
    )


async def get_metrics(service: Service, caller: Caller, request: Request) -> Response:
    if not service.metrics_enabled:
        raise Refused("not_found", "metrics are switched off (LOOMLOG_METRICS_ENABLED=0)")
    return Response(await service.metrics.render(service.current_application), media_type=CONTENT_TYPE)


async def _missing_dependencies(service: Service) -> list[str]:
    """Return the dependencies that do not respond; checked at most once in CHECK_EVERY_S."""
    if service.current_application is None:
        return sorted(service.readiness.missing) or ["broker", "postgres"]
    async with service.readiness_lock:
        now = time.monotonic()
        if now - service.readiness_checked_at >= CHECK_EVERY_S or not service.readiness_checked_at:
            layer = service.current_application
            names = await asyncio.gather(
                _check_dependency("broker", layer.audit_log.ping()),
                _check_dependency("postgres", layer.projection.cursors()),
            )
            service.unreachable = frozenset(name for name in names if name)
            service.readiness_checked_at = time.monotonic()
    return sorted(service.unreachable)


async def _check_dependency(name: str, check: Awaitable[object]) -> str:
    """Return the name of a dependency that does not respond; empty when it does."""
    try:
        async with asyncio.timeout(CHECK_WAIT_S):
            await check
    except (TimeoutError, ConnectorError):
        return name
    except Refused as declined:
        return "read_models" if has_no_tables(declined) else name
    return ""
