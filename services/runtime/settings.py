"""Settings of the runtime, taken from the product's settings once, in main()."""

import os
import socket
from dataclasses import dataclass, field

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.families.process_start import require_for_start


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Trace export. `headers` is `name=value` separated by commas and may contain a secret."""

    endpoint: str
    headers: str = field(repr=False)
    service: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Connections and limits of one runtime process."""

    kafka: KafkaOptions
    postgres: PostgresOptions
    name: str
    session_timeout_ms: int
    standby_address: str
    """Address of the liveness socket; empty = no liveness socket and no standby."""
    spares: int
    """Members of the group that are kept without partitions; 0 = none, and each runtime folds as a standby instead."""
    drain_timeout_s: float
    """Pause everything before the first partition is taken, once for each value; empty = no."""
    tool_parallelism: int
    client_tool_timeout_s: float
    """Timeout of a tool call by a client."""
    http_hosts: tuple[str, ...]
    callers_choose_hosts: bool
    """Whether hosts chosen by callers replace `http_hosts`."""
    metrics_port: int | None
    """None = no metrics over HTTP, 0 = any free port."""
    tracing: TracingSettings | None
    """None = no traces."""
    key_encryption_keys: KeyEncryptionKeys | None
    """None = content is not encrypted."""
    installation_secret: SecretKey | None
    """None = callbacks are not signed, and credentials of runs cannot be opened."""


def build_runtime_settings(settings: Settings) -> RuntimeSettings:
    """Build the runtime's settings. Raises StartProblem."""
    content_keys, secret = require_for_start(settings)
    name = settings.replica_id or f"{socket.gethostname()}-{os.getpid()}"
    return RuntimeSettings(
        kafka=kafka_options(settings, f"loomlog-runtime-{name}"),
        postgres=postgres_options(settings, "loomlog-runtime"),
        name=name,
        session_timeout_ms=settings.session_timeout_ms,
        standby_address=settings.standby_addr,
        spares=settings.spares or 0,
        drain_timeout_s=settings.drain_timeout_ms / 1000,
        tool_parallelism=settings.tool_parallelism,
        client_tool_timeout_s=settings.client_tool_timeout_ms / 1000,
        http_hosts=settings.http_host_allowlist,
        callers_choose_hosts=settings.http_caller_authoritative,
        metrics_port=settings.runtime_metrics_port if settings.metrics_enabled else None,
        tracing=_tracing_settings(settings),
        key_encryption_keys=content_keys,
        installation_secret=secret,
    )


def _tracing_settings(settings: Settings) -> TracingSettings | None:
    if not settings.otel_exporter_otlp_endpoint:
        return None
    return TracingSettings(
        endpoint=settings.otel_exporter_otlp_endpoint,
        headers=settings.otel_exporter_otlp_headers,
        service=settings.otel_service_name,
        ratio=settings.otel_traces_sampler_ratio,
    )
