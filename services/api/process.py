"""The state of a process that serves requests, and the application that it works with.

Before: main.py, services/grpc/main.py. After: service.py, services/application/bootstrap.py.
"""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import disable_created_metrics

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import build_token_table
from loomlog.connectors.configuration.providers import build_providers
from loomlog.connectors.crypto.operator_tokens import peppers_of
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.insights_report import InsightsClient
from loomlog.connectors.identity_providers.sign_in import open_sign_in
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.process import logs
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.storage.metric_samples import PostgresMetricSamples
from loomlog.services.api.configuration_view import features_of
from loomlog.services.api.mcp.sessions import Sessions
from loomlog.services.api.metric_sampler import MetricSampler
from loomlog.services.api.metrics import Metrics
from loomlog.services.api.request_shares import RequestShares
from loomlog.services.api.service import Service, installed_version
from loomlog.services.api.settings import ApiSettings
from loomlog.services.api.shared_insights import SharedInsights
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.bootstrap import open_application, wait_for
from loomlog.services.application.resources import clock_ms
from loomlog.services.core.refusals import StartProblem
from loomlog.services.families import FamilyProblem
from loomlog.services.families.opening import RunningProcess, read_family_options
from loomlog.services.families.process_start import load_for_start
from loomlog.services.families.registry import all_families

log = logging.getLogger(__name__)

START_PROBLEMS = (ConfigurationError, FamilyProblem, StartProblem)
"""What a person has to change before the process can start; the text says it."""


def run_process(
    name: str, run: Callable[[ProcessConfiguration], Coroutine[Any, Any, None]], process_log: logging.Logger
) -> int:
    """Load the configuration, run the process to its end, and return its exit code."""
    try:
        loaded = load_for_start(os.environ, working_directory=Path.cwd(), services=["api"])
        logs.configure_logging(loaded.settings.log_level)
        if loaded.settings.bash_enabled:
            disable_process_dumping()
        for warning in loaded.warnings:
            process_log.warning("%s", warning)
        uvloop.run(run(loaded))
    except START_PROBLEMS as error:
        print(f"{name} cannot start: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        return 2
    except ConnectorError as error:
        process_log.error("%s ends: %s: %s", name, type(error).__name__, error)
        return 1
    return 0


def build_service(loaded: ProcessConfiguration, settings: ApiSettings) -> Service:
    """Return the state of this process, which serves before its application is open."""
    # It would add a second, unused series to each counter.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library types this one function not
    secret = settings.endpoints.installation_key
    identity_providers, sign_in = open_sign_in(loaded.configuration, os.environ, secret)
    return Service(
        authenticator=Authenticator(
            build_token_table(loaded.configuration, loaded.settings, os.environ),
            restricts_operator_key=loaded.settings.operator_key_restriction,
            has_minted=peppers_of(loaded.settings.operator_token_pepper, secret) is not None,
            providers=identity_providers,
        ),
        configuration=loaded.configuration,
        providers=build_providers(loaded.configuration, loaded.settings, os.environ),
        metrics=Metrics(version=installed_version(), commit=""),
        replica_id=settings.replica_id,
        mcp_sessions=Sessions(secret, clock_ms=clock_ms),
        max_request_bytes=settings.max_request_bytes,
        metrics_enabled=settings.metrics_enabled,
        insights=SharedInsights(InsightsClient(settings.insights_url) if settings.insights_url else None),
        sign_in=sign_in,
        public_url=loaded.settings.public_url,
        login_origins=settings.ui_login_origins,
        public_config=loaded.settings.public_config,
        features=features_of(loaded),
        samples=PostgresMetricSamples(settings.endpoints.postgres) if settings.sample_every_s else None,
        memory_changes_hours=loaded.settings.memory_changes_retention_hours,
        http_hosts=loaded.settings.http_host_allowlist,
        own_hosts=settings.own_hosts,
        shares=RequestShares(streams_per_principal=settings.streams_per_principal),
    )


async def _nothing() -> None:
    return None


async def run_application(
    service: Service,
    loaded: ProcessConfiguration,
    settings: ApiSettings,
    *,
    name: str = "api",
    on_ready: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Run the application that the requests use, until cancelled. `name` is that of the process."""
    codec = await wait_for("schemas", service.readiness, lambda: load_codec(loaded.settings))
    async with open_application(
        settings.endpoints,
        service.authenticator,
        codec,
        keepalive_s=settings.keepalive_s,
        readiness=service.readiness,
        on_batch=service.metrics.batch_records.observe,
        family_options=(
            *read_family_options(loaded, all_families()),
            RunningProcess.of(name, loaded.settings.replica_id),
        ),
        secrets=loaded.secret_registry,
        beside=[service.open_access.run, *(_samplers(service, settings) if name == "api" else [])],
    ) as (layer, work):
        service.current_application = layer
        await on_ready()
        log.info("ready")
        tune_gc()
        try:
            await work()
        finally:
            # In either case the process stops now and closes what the requests in progress still need.
            service.is_stopping = True
            service.current_application = None
            if service.samples is not None:
                await service.samples.close()


def _samplers(service: Service, settings: ApiSettings) -> list[Callable[[], Awaitable[None]]]:
    """Return what takes samples of this process; nothing where none are taken."""
    if service.samples is None:
        return []
    sampler = MetricSampler(
        service.samples,
        replica_id=service.replica_id,
        every_s=settings.sample_every_s,
        application=lambda: service.current_application,
        clock_ms=clock_ms,
    )
    return [sampler.run]


def end_streams(service: Service) -> None:
    """End the streams of all clients, because the process stops; they reconnect to another."""
    service.is_stopping = True
    if service.current_application is not None:
        service.current_application.end_streams()
