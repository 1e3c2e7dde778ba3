"""Settings of the API process: its part of the product's settings, read once in main()."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.signatures import PublicKey, load_public_keys
from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.redpanda.topics import load_topics
from loomlog.services.api.ui_session import host_names
from loomlog.services.application.bootstrap import Endpoints
from loomlog.services.application.clients.connections import ClientLimits
from loomlog.services.core.refusals import StartProblem
from loomlog.services.families.process_start import require_for_start

STATE_FILES_FOLDER = "states"
"""Folder in the blob store's folder, which all replicas share; payloads are in folders named with two hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Settings of the API process in addition to the configuration files."""

    host: str
    port: int
    endpoints: Endpoints
    replica_id: str
    max_request_bytes: int
    keepalive_s: float
    streams_per_principal: int
    metrics_enabled: bool
    sample_every_s: float
    """0: no samples of metrics are taken."""
    insights_url: str
    """Empty: it is switched off, or its port is not known here."""
    ui_enabled: bool
    ui_login_origins: tuple[str, ...]
    own_hosts: frozenset[str]
    """Hosts, with and without port, of the addresses that are configured for this API."""


def api_settings(settings: Settings, *, name: str = "api") -> ApiSettings:
    """Select the API's part of the settings. `name` is that of the process. Raises StartProblem."""
    content_keys, secret = require_for_start(settings)
    host, _, port = settings.listen_addr.rpartition(":")
    return ApiSettings(
        host=host.strip("[]"),
        port=int(port),
        endpoints=Endpoints(
            kafka=kafka_options(settings, f"loomlog-{name}"),
            postgres=postgres_options(settings, f"loomlog-{name}"),
            blobs=FileBlobs(settings.effective_blob_folder),
            private_hosts=settings.http_private_host_allowlist,
            state_files=StateFiles(settings.effective_blob_folder / STATE_FILES_FOLDER),
            postgres_connections=settings.postgres_max_connections,
            postgres_min_connections=settings.postgres_min_connections,
            key_encryption_keys=content_keys,
            installation_key=secret,
            memory_changes_enabled=settings.memory_changes_enabled,
            required_topics=load_topics(
                "local" if settings.replication_factor == 1 else "cluster",
                partitions=settings.partitions,
                replicas=settings.replication_factor,
            ),
            audit_keys=_audit_keys(settings),
            audit_period_s=settings.audit_every_ms / 1000,
            client_limits=ClientLimits(
                frame_bytes=settings.client_tool_max_bytes, connections=settings.client_tool_max_conns
            ),
        ),
        replica_id=settings.replica_id or f"{socket.gethostname()}-{os.getpid()}",
        max_request_bytes=settings.max_request_bytes,
        keepalive_s=settings.sse_keepalive_ms / 1000,
        streams_per_principal=settings.streams_per_principal,
        metrics_enabled=settings.metrics_enabled,
        sample_every_s=settings.metrics_sample_interval_ms / 1000 if settings.metrics_enabled else 0,
        insights_url=_insights_url(settings),
        ui_enabled=settings.ui_enabled,
        ui_login_origins=settings.ui_login_origins,
        own_hosts=host_names(settings.public_url, settings.base_url, f"http://{settings.listen_addr}"),
    )


def _insights_url(settings: Settings) -> str:
    if not settings.insights_enabled:
        return ""
    if settings.insights_url or not settings.insights_port:
        return settings.insights_url
    return f"http://127.0.0.1:{settings.insights_port}"


def _audit_keys(settings: Settings) -> Mapping[str, PublicKey]:
    """Return the public keys of the settings; a private key stays with the auditor."""
    try:
        return load_public_keys(settings.audit_public_keys)
    except Permanent as error:
        raise StartProblem(f"LOOMLOG_AUDIT_PUBLIC_KEYS: {error}") from error
