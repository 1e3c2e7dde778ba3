"""The kind documentsource: another installation whose documents agents may read.

Before: kind.py, memory_backend.py. After: kinds.py.
"""

from typing import Annotated, Literal

from loomlog.connectors.configuration.field_classes import Grant, Order
from loomlog.connectors.configuration.field_types import EnvName, configuration_block
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.mcp_server import require_url
from loomlog.connectors.definitions.memory_backend import require_tenant


@configuration_block
class DocumentSourceConfig:
    """Address of the installation, and the NAME of the environment variable with its key."""

    base_url: str
    api_key_env: EnvName | None = None


@configuration_block
class DocumentTenancy:
    """How tenants are kept apart: by a key for each; the pattern holds {tenant_id}."""

    kind: Literal["key_per_tenant"]
    env_pattern: str


@configuration_block
class DocumentSourceBlock:
    """Content of a document source."""

    config: Annotated[DocumentSourceConfig, Grant(order=Order.UNSET)]
    tenancy_strategy: Annotated[DocumentTenancy | None, Grant(order=Order.UNSET)] = None


def _check(source: DocumentSourceBlock) -> None:
    require_url("config.base_url", source.config.base_url)
    if source.tenancy_strategy:
        require_tenant("tenancy_strategy.env_pattern", source.tenancy_strategy.env_pattern)


DOCUMENT_SOURCE = Kind(name="documentsource", tool="DocumentSourceDef", block=DocumentSourceBlock, check=_check)
