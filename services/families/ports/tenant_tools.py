"""Tools that the runs of one tenant have besides those of the process.

Before: services/runtime/tools/toolset.py. After: services/families/mcp/tools.py.
"""

from collections.abc import Mapping
from typing import Protocol

from loomlog.connectors.protocols import Tool, ToolSpec


class TenantTools(Protocol):
    """The tools that a tenant's runs may use, at one time."""

    @property
    def has_servers(self) -> bool:
        """Whether there may be any, now or once servers are asked."""
        ...

    def find(self, name: str) -> Tool | None: ...
    def specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]: ...

    def shown_lists(self, specs: tuple[ToolSpec, ...]) -> Mapping[str, str]:
        """Return the hashes of the lists that these tools are of, by server."""
        ...


class ToolsOfTenants(Protocol):
    """The tools of all tenants."""

    def for_tenant(self, tenant: str) -> TenantTools: ...

    async def prepare(self, tenant: str, names: tuple[str, ...]) -> None:
        """Ask servers whose tools are granted, by these names and patterns, and not known yet."""
        ...
