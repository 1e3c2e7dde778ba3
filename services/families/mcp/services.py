"""MCP servers in a process: opened once, for requests, new definitions and runs.

Before: services/families/opening.py. After: handlers.py, servers.py, tools.py.
"""

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import ConnectorError
from loomlog.services.core.mcp_logins import McpLogins
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.table import TENANT, DefinitionTable
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.services import IdentityOptions
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.mcp.discovery import McpDiscovery
from loomlog.services.families.mcp.grants import McpGrants
from loomlog.services.families.mcp.handlers import McpHandlers
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.mcp.servers import McpOptions, McpServers
from loomlog.services.families.mcp.tools import EndCalls, McpTools
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions, Work
from loomlog.services.families.ports.run_ends import ToolCaller
from loomlog.services.families.ports.tenant_tools import ToolsOfTenants

log = logging.getLogger(__name__)

NEEDS = ("definition", "identity")


def read_options(loaded: ProcessConfiguration) -> McpOptions:
    """Return the options of a process."""
    return McpOptions(
        blocks=loaded.configuration.mcp_servers,
        hosts=loaded.settings.http_host_allowlist,
        private_hosts=loaded.settings.http_private_host_allowlist,
        origin=loaded.settings.public_url or loaded.settings.base_url or f"http://{loaded.settings.listen_addr}",
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open MCP servers; a definition of one is made with the tools that it lists."""
    options = context.options(McpOptions)
    servers = McpServers(
        context.get(DefinitionTable),
        context.parts.replicas,
        context.commands,
        options,
        clock_ms=context.clock_ms,
        now_s=time.monotonic,
        credentials=context.find(CredentialReader),
    )
    context.get(DefinitionOperations).composer.discover = DefinitionDiscovery(servers).discover
    grants = servers.grants = McpGrants(
        context.get(CredentialReader),
        context.find(InstallationCommands) or InstallationCommands(context.commands, context.parts.replicas),
        servers.oauth_requests,
        secret=context.options(IdentityOptions).secret,
        origin=options.origin,
        clock_ms=context.clock_ms,
    )
    handlers = McpHandlers(servers, grants, clock_ms=context.clock_ms)
    context.provide(servers)
    context.provide_as(McpLogins, handlers)
    owned, tasks = context.find(OwnedPartitions), dict[str, Work]()
    if owned is not None:
        context.provide_as(ToolsOfTenants, McpTools(servers))
        context.provide_as(ToolCaller, EndCalls(servers))
        discovery = McpDiscovery(servers, now_s=time.monotonic)
        tasks["tools of MCP servers"] = partial(discovery.run, owned.is_first)
    return FamilyServices(handlers=handlers.by_operation(), tasks=tasks, close=servers.close)


class DefinitionDiscovery:
    """Asks a server that is being defined for its tools; a server that does not answer is defined without."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def discover(self, name: str, tenant: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tools; empty when the server does not list them."""
        block: McpServerBlock = KINDS["mcpserver"].block_of(content)
        server = Server(name=name, tenant=tenant, owner=tenant, source=TENANT, def_id="", block=block)
        try:
            listed, _ = await self._servers.ask_for_tools(server)
        except ConnectorError as error:
            log.warning("the MCP server %s is defined without tools: %s", name, error)
            return []
        return listed.to_json()
