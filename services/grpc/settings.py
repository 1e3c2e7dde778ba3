"""Settings of the gRPC process: those of the API, and where it listens."""

from dataclasses import dataclass
from pathlib import Path

from loomlog.connectors.configuration.settings import Settings
from loomlog.services.api.settings import ApiSettings, api_settings
from loomlog.services.core.refusals import StartProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """Settings of the gRPC process in addition to the configuration files."""

    address: str
    certificate: Path | None
    """With `key`; None: without TLS."""
    key: Path | None
    has_reflection: bool
    shared: ApiSettings


def grpc_settings(settings: Settings) -> GrpcSettings:
    """Select the process's part of the settings. Raises StartProblem."""
    if not settings.grpc_addr:
        raise StartProblem("LOOMLOG_GRPC_ADDR is not set: name where gRPC is to listen, such as 127.0.0.1:8788")
    if (settings.grpc_tls_cert is None) != (settings.grpc_tls_key is None):
        raise StartProblem("LOOMLOG_GRPC_TLS_CERT and LOOMLOG_GRPC_TLS_KEY belong together: set both, or neither")
    return GrpcSettings(
        address=settings.grpc_addr,
        certificate=settings.grpc_tls_cert,
        key=settings.grpc_tls_key,
        has_reflection=settings.grpc_reflection,
        shared=api_settings(settings, name="grpc"),
    )
