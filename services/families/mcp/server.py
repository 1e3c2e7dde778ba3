"""An MCP server as it resolves for a tenant.

Before: servers.py finds it. After: grants.py, tools.py.
"""

from dataclasses import dataclass, field

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.mcp.state import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that resolves for a tenant."""

    name: str
    tenant: str
    """Tenant that uses it."""
    owner: str
    """Tenant that its list of tools belongs to."""
    source: str
    def_id: str
    block: McpServerBlock = field(repr=False)

    @property
    def aggregate(self) -> str:
        """Id of the aggregate with its tools."""
        return aggregate_id(NAME, self.owner, self.name)
