"""The kind memorybackend: where the memory of agents lies. An unknown kind is refused and never replaced by another.

Before: kind.py. After: kinds.py.
"""

from dataclasses import dataclass
from typing import Literal

from loomlog.connectors.configuration.field_types import FORBID_EXTRA, EnvName, NonNegativeInt
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.mcp_server import require_url
from loomlog.connectors.definitions.problems import DefinitionProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBackendConfig:
    """Address of a remote memory."""

    __pydantic_config__ = FORBID_EXTRA
    base_url: str = ""
    api_version: str = ""
    api_key_env: EnvName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTenancy:
    """How tenants are kept apart; the patterns hold {tenant_id}."""

    __pydantic_config__ = FORBID_EXTRA
    kind: Literal["key_per_tenant", "shared_key_with_prefix"]
    env_pattern: str = ""
    prefix_pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBackendBlock:
    """Content of a memory backend."""

    __pydantic_config__ = FORBID_EXTRA
    kind: Literal["inprocess", "remote"]
    config: MemoryBackendConfig | None = None
    tenancy_strategy: MemoryTenancy | None = None
    fallback_on_error: Literal["inprocess"] | None = None
    health_check_interval_seconds: NonNegativeInt = 0


def require_tenant(field_name: str, pattern: str) -> None:
    """Raise DefinitionProblem unless the pattern differs between tenants."""
    if "{tenant_id}" not in pattern:
        raise DefinitionProblem("invalid_definition", f"{field_name}: expected a pattern with {{tenant_id}}")


def _check(backend: MemoryBackendBlock) -> None:
    if backend.kind == "remote":
        if backend.config is None or not backend.config.base_url:
            raise DefinitionProblem("missing_field", "missing required field: config.base_url (for kind remote)")
        require_url("config.base_url", backend.config.base_url)
    match backend.tenancy_strategy:
        case MemoryTenancy(kind="key_per_tenant", env_pattern=pattern):
            require_tenant("tenancy_strategy.env_pattern", pattern)
        case MemoryTenancy(kind="shared_key_with_prefix", prefix_pattern=pattern):
            require_tenant("tenancy_strategy.prefix_pattern", pattern)


MEMORY_BACKEND = Kind(name="memorybackend", tool="MemoryBackendDef", block=MemoryBackendBlock, check=_check)
