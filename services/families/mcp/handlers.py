"""The handlers of the operations on MCP servers.

Before: services.py. After: servers.py.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast
from urllib.parse import urlsplit, urlunsplit

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.mcp.oauth import CLIENT_CREDENTIALS
from loomlog.connectors.mcp.tool_list import ListedTool, visible_name
from loomlog.connectors.tools.references import RunValues
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.core.mcp_logins import AskedConsent, McpLogins
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.table import SHARED
from loomlog.services.families.mcp import api
from loomlog.services.families.mcp.effects import effect_of
from loomlog.services.families.mcp.grants import WAIT_MS, McpGrants
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.mcp.servers import McpServers
from loomlog.services.families.mcp.state import NEEDS_AUTHORIZATION


class McpHandlers(McpLogins):
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(self, servers: McpServers, grants: McpGrants, *, clock_ms: Callable[[], int]) -> None:
        self._servers = servers
        self._grants = grants
        self._clock_ms = clock_ms

    @property
    def origin(self) -> str:
        """Address of the API as browsers see it."""
        return self._grants.origin

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.LIST: self.list, api.TOOLS: self.tools, api.PROBE: self.probe, api.LOGIN: self.login}

    async def list(self, call: Call[NoInput]) -> Answer[api.McpServerList]:
        """Return the servers that the caller's tenant may use."""
        servers = [
            self._shown(server, _user_of(call)) for server in self._servers.servers(call.caller.tenant or SHARED)
        ]
        return Answer(value=api.McpServerList(servers=servers))

    async def tools(self, call: Call[api.McpServerNamed]) -> Answer[api.McpToolList]:
        """Return the tools that a server listed last."""
        return Answer(value=self._shown_tools(self._require(call), _user_of(call)))

    async def probe(self, call: Call[api.McpServerNamed]) -> Answer[api.McpToolList]:
        """Ask a server for its tools now."""
        server = self._require(call)
        try:
            await self._servers.discover(server, "probe", _values_of(call))
        except ConnectorError as error:
            raise _refusal(f"{server.name} did not list its tools: {error}", error) from error
        return Answer(value=self._shown_tools(server, _user_of(call)))

    async def login(self, call: Call[api.McpLogin]) -> Answer[api.McpLoginBegun]:
        """Begin to grant access to a server."""
        asked, server = call.input, self._require(call)
        if asked.scope == "tenant" and asked.scope_id:
            raise Refused("bad_request", "scope_id: the tenant has none")
        if not server.block.url:
            raise Refused(
                "invalid_definition", f"{server.name} is a process of this installation, and asks for no grant"
            )
        if server.block.oauth is not None and server.block.oauth.grant == CLIENT_CREDENTIALS:
            raise Refused("invalid_definition", f"{server.name} has grant: client_credentials, which needs no person")
        began_at_ms = self._clock_ms()
        try:
            url = await self._grants.begin(
                server,
                await self._servers.find_challenge(server),
                scope=asked.scope,
                scope_id=(asked.scope_id or call.principal.subject) if asked.scope == "user" else "",
                subject=call.principal.subject,
                scopes=asked.scopes,
            )
        except ConnectorError as error:
            raise _refusal(f"access to {server.name} cannot be asked for: {error}", error) from error
        expires_at = format_rfc3339(began_at_ms + WAIT_MS)
        return Answer(value=api.McpLoginBegun(name=server.name, url=url, expires_at=expires_at))

    async def find_pending(self, state: str) -> AskedConsent:
        """Return what a person is asked for. Raises Refused and Unavailable."""
        try:
            return await self._grants.find_pending(state)
        except ConnectorError as error:
            raise _refusal(str(error), error) from error

    async def finish_login(self, query: Mapping[str, str]) -> str:
        """Store the tokens that a person has granted, and ask the server for its tools. Raises Refused and
        Unavailable.
        """
        try:
            place = await self._grants.finish(query, self._servers.find)
        except ConnectorError as error:
            raise _refusal(f"access was not granted: {error}", error) from error
        server = self._servers.find(place.tenant, place.server)
        if server is not None:
            values = RunValues(root_run_id="", tenant=place.tenant, credentials={}, user=place.scope_id)
            with suppress(ConnectorError):  # it is recorded, and shown with the server
                await self._servers.discover(server, "probe", values)
        return place.server

    def _require(self, call: Call[Any]) -> Server:
        tenant = call.caller.tenant or SHARED
        server = self._servers.find(tenant, call.input.name)
        if server is None:
            known = ", ".join(self._servers.names(tenant)[:20]) or "none"
            raise Refused("not_found", f"there is no MCP server {call.input.name!r}; there are: {known}")
        return server

    def _shown_tools(self, server: Server, user: str) -> api.McpToolList:
        listed = self._servers.tools(server)
        return api.McpToolList(
            server=self._shown(server, user),
            tools=[_shown_tool(server, tool) for tool in listed.tools],
            problems=[*(self._servers.listed(server).problems or listed.problems)],
        )

    def _shown(self, server: Server, user: str) -> api.McpServer:
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
            authorization=self._authorization(server, user),
            error=state.error,
        )

    def _authorization(self, server: Server, user: str) -> Literal["none", "granted", "needs_authorization"]:
        values = RunValues(root_run_id="", tenant=server.tenant, credentials={}, user=user)
        if server.block.url and self._grants.source(server, values) is not None:
            return "granted"
        return "needs_authorization" if self._servers.listed(server).reason == NEEDS_AUTHORIZATION else "none"


def _user_of(call: Call[Any]) -> str:
    return call.caller.user_id or (call.caller.principal.subject if call.caller.principal is not None else "")


def _values_of(call: Call[Any]) -> RunValues:
    return RunValues(root_run_id="", tenant=call.caller.tenant, credentials={}, user=_user_of(call))


def _refusal(text: str, error: ConnectorError) -> Refused | Unavailable:
    return Unavailable(text) if isinstance(error, Transient) else Refused("invalid_definition", text)


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
