"""The handlers of the operations on MCP servers.

Before: services.py. After: servers.py.
"""

from typing import Literal, cast
from urllib.parse import urlsplit, urlunsplit

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.mcp.tool_list import ListedTool, visible_name
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.table import SHARED
from loomlog.services.families.mcp import api
from loomlog.services.families.mcp.effects import effect_of
from loomlog.services.families.mcp.servers import McpServers, Server


class McpHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.LIST: self.list, api.TOOLS: self.tools, api.PROBE: self.probe}

    async def list(self, call: Call[NoInput]) -> Answer[api.McpServerList]:
        """Return the servers that the caller's tenant may use."""
        servers = [self._shown(server) for server in self._servers.servers(call.caller.tenant or SHARED)]
        return Answer(value=api.McpServerList(servers=servers))

    async def tools(self, call: Call[api.McpServerNamed]) -> Answer[api.McpToolList]:
        """Return the tools that a server listed last."""
        return Answer(value=self._shown_tools(self._require(call)))

    async def probe(self, call: Call[api.McpServerNamed]) -> Answer[api.McpToolList]:
        """Ask a server for its tools now."""
        server = self._require(call)
        try:
            await self._servers.discover(server, "probe")
        except ConnectorError as error:
            text = f"{server.name} did not list its tools: {error}"
            if isinstance(error, Transient):
                raise Unavailable(text) from error
            raise Refused("invalid_definition", text) from error
        return Answer(value=self._shown_tools(server))

    def _require(self, call: Call[api.McpServerNamed]) -> Server:
        tenant = call.caller.tenant or SHARED
        server = self._servers.find(tenant, call.input.name)
        if server is None:
            known = ", ".join(self._servers.names(tenant)[:20]) or "none"
            raise Refused("not_found", f"there is no MCP server {call.input.name!r}; there are: {known}")
        return server

    def _shown_tools(self, server: Server) -> api.McpToolList:
        listed = self._servers.tools(server)
        return api.McpToolList(
            server=self._shown(server),
            tools=[_shown_tool(server, tool) for tool in listed.tools],
            problems=[*(self._servers.listed(server).problems or listed.problems)],
        )

    def _shown(self, server: Server) -> api.McpServer:
        state, tools = self._servers.listed(server), self._servers.tools(server)
        return api.McpServer(
            name=server.name,
            source=cast(Literal["file", "tenant", "shared"], server.source),
            transport=server.block.transport,
            url=_without_query(server.block.url),
            description=server.block.description,
            def_id=server.def_id,
            revision=state.revision,
            tool_count=len(tools.tools),
            digest=tools.digest if tools.tools else "",
            listed_at=format_rfc3339(state.listed_at_ms) if state.listed_at_ms else "",
            error=state.error,
        )


def _shown_tool(server: Server, tool: ListedTool) -> api.McpListedTool:
    return api.McpListedTool(
        name=visible_name(server.name, tool.name),
        server_name=tool.name,
        description=tool.description,
        effect=effect_of(server.block, tool).value,
        input_schema=tool.input_schema,
    )


def _without_query(url: str) -> str:
    """Return an address without its query, which may hold a key."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
