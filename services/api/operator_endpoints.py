"""Health, metrics and operator views. Formats as in reference surfaces 1.9.

The two public endpoints reveal no secrets: /healthz reports the running version, /readyz which of the two dependencies
is missing. Dependency checks are bounded and shared, so that frequent probes do no harm.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.models.catalog import build_model
from loomlog.projections.engine.lag import ProjectionLag, lag_json
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.metrics import CONTENT_TYPE
from loomlog.services.api.request_parsing import query_integer
from loomlog.services.api.responses import JsonResponse, json_response, position_headers
from loomlog.services.api.routing_view import aliases_json, routing_json
from loomlog.services.api.routing_view import resolver_json as resolver_view
from loomlog.services.api.service import Service
from loomlog.services.application.answers.operators import (
    Concurrency,
    Health,
    Me,
    ModelAliasList,
    ProviderModels,
    Readiness,
    Resolver,
    Routing,
)
from loomlog.services.application.application import clock_ms
from loomlog.services.application.errors import RETRY_LATER_S
from loomlog.services.application.log.json_types import ProjectionProblemReport
from loomlog.services.application.log.projection_problems import PROBLEMS_DEFAULT, PROBLEMS_MAX
from loomlog.services.application.queries.read_models import has_no_tables
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.core.refusals import Refused

CHECK_WAIT_S = 2.0
"""Seconds to wait for each dependency in a readiness check."""
CHECK_EVERY_S = 1.0
"""Seconds that a readiness result is cached; /readyz is public."""
LIST_MODELS_WAIT_S = 10.0
"""Seconds to wait for a provider's list of models. Parity: reference surfaces 1.9."""


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
    return Response(await service.metrics.render(service.current_application, caller), media_type=CONTENT_TYPE)


async def get_caller(service: Service, caller: Caller, request: Request) -> JsonResponse[Me]:
    return json_response(
        {
            "tenant_id": caller.tenant,
            "subject": caller.subject,
            "name": caller.name,
            "scopes": sorted(caller.scopes & SCOPES),
            "is_admin": caller.is_admin,
            "is_isolated": caller.is_isolated,
            "legacy": caller.legacy,
            "open_mode": caller.open_mode,
            "capabilities": {
                "mcp_allow_dynamic_stdio": False,
                "http_host_allowlist_configured": bool(service.http_hosts),
            },
        }
    )


async def get_projections(service: Service, caller: Caller, request: Request) -> JsonResponse[ProjectionLag]:
    layer = service.application
    progress = await layer.projection.progress()
    return json_response(lag_json(progress, layer.barrier.topic, layer.barrier.log_ends(), now_s=time.time()))


async def list_projection_problems(
    service: Service, caller: Caller, request: Request
) -> JsonResponse[ProjectionProblemReport]:
    limit = query_integer(request, "limit", PROBLEMS_DEFAULT, minimum=1, maximum=PROBLEMS_MAX)
    return json_response(await service.application.projection_problems.report(caller, limit=limit))


async def get_routing(service: Service, caller: Caller, request: Request) -> JsonResponse[Routing]:
    now_ms = clock_ms()
    view = routing_json(
        service.configuration,
        service.providers,
        _availability(service),
        now_ms=now_ms,
        is_admin=caller.is_admin,
        operator_key_restricted=caller.operator_key_restricted,
    )
    return json_response({"generated_at": format_rfc3339(now_ms), **view})


async def list_model_aliases(service: Service, caller: Caller, request: Request) -> JsonResponse[ModelAliasList]:
    return json_response(aliases_json(service.configuration))


async def list_provider_models(service: Service, caller: Caller, request: Request) -> JsonResponse[ProviderModels]:
    """List a provider's models, requested from the provider now."""
    name = request.path_params["provider_id"]
    provider = service.providers.get(name)
    if provider is None:
        raise Refused("provider_unknown", f"there is no provider {name[:80]}")
    if not provider.is_usable:
        raise Refused("provider_unavailable", f"{name} cannot be used: {provider.unusable_reason}")
    try:
        model = service.models.get(name)
        if model is None:
            model = service.models[name] = build_model(provider)
        async with asyncio.timeout(LIST_MODELS_WAIT_S):
            listed = await model.list_models()
    except TimeoutError as error:
        late = f"{name} has not listed its models within {LIST_MODELS_WAIT_S:g} s"
        raise Refused("provider_list_failed", late) from error
    except ConnectorError as error:
        code = "provider_unavailable" if isinstance(error, Permanent) else "provider_list_failed"
        raise Refused(code, f"{name} has not listed its models: {error}") from error
    return json_response({"provider": name, "models": listed})


async def get_resolver(service: Service, caller: Caller, request: Request) -> JsonResponse[Resolver]:
    return _resolver_response(service, _availability(service))


async def probe_providers(service: Service, caller: Caller, request: Request) -> JsonResponse[Resolver]:
    """Probe the providers from a runtime: only the runtimes' connection to the providers matters."""
    usable = [name for name, provider in service.providers.items() if provider.is_usable]
    table, position = await service.application.probes.probe(caller, usable)
    response = _resolver_response(service, table)
    response.headers.update(position_headers(position) or {})
    return response


async def get_concurrency(service: Service, caller: Caller, request: Request) -> JsonResponse[Concurrency]:
    layer = service.application
    users: Counter[str] = Counter()
    providers: Counter[str] = Counter()
    working = 0
    for user_id, provider, runs, at_work in await layer.queries.count_active(caller):
        users[user_id] += runs
        providers[provider] += runs
        working += at_work
    return json_response(
        {
            "active": users.total(),
            "at_work": working,
            "queued": layer.publisher.waiting_count + layer.runs.pending_starts,
            "per_user": dict(users),
            # Only the runtimes know the requests queued for a provider: see their /metrics.
            "providers": {name: {"active": count, "queued": None} for name, count in providers.items()},
        }
    )


def _availability(service: Service) -> AvailabilityTable:
    """Return the availability of models; empty while the log is unavailable."""
    return (
        service.current_application.provider_table.table
        if service.current_application is not None
        else AvailabilityTable()
    )


def _resolver_response(service: Service, matrix: AvailabilityTable) -> JsonResponse[Resolver]:
    now_ms = clock_ms()
    view = resolver_view(service.providers, matrix, now_ms=now_ms)
    return json_response({"generated_at": format_rfc3339(now_ms), **view})


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
