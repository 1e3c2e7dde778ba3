"""Tools of MCP servers for runs: `mcp__SERVER__TOOL`.

The tools that a tenant's runs may use follow from what its servers have listed (services/families/mcp), which this
process has in memory; nothing is asked before a turn. A call opens a session when there is none, checks the arguments
against the server's schema, and returns what the server answers. When the connection breaks after the request was sent,
the outcome of a call that is not safe to repeat is unknown, as for any tool.

Before: services/runtime/tools/toolset.py. After: servers.py, connectors/mcp/session.py.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from loomlog.connectors.configuration.mcp_block import TOOL_PREFIX
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.json_schema import CompiledSchema, compile_schema
from loomlog.connectors.mcp.elicitation import to_response
from loomlog.connectors.mcp.peer import NotSent, SessionLost
from loomlog.connectors.mcp.tool_list import SEPARATOR, ListedTool, server_part, visible_name
from loomlog.connectors.protocols import EffectClass, GivenAnswer, Tool, ToolContext, ToolResult, ToolSpec
from loomlog.connectors.tools.references import RunValues, mask_credentials, masked_errors, stored_references
from loomlog.connectors.tools.registry import build_specs
from loomlog.schemas.records import replace
from loomlog.services.core.run.interrupts.questions import CANCELLED
from loomlog.services.core.run.subagents.children import root_of
from loomlog.services.families.mcp.effects import effect_of
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.mcp.servers import McpServers
from loomlog.services.families.ports.credentials import CredentialUser
from loomlog.services.families.ports.run_ends import EndedRun

log = logging.getLogger("loomlog.runtime")

TENANTS_MAX = 1_000
"""Tenants whose tools are kept; those of another one are built again, in about 10 us a tool."""
SPECS_MAX = 200
"""Lists of granted tools that are kept for a tenant; its agents are few."""
GRACE_S = 5.0
"""Seconds after the timeout of a call's request within which its own error comes first."""
PREPARE_TIMEOUT_S = 10.0
"""Seconds that a turn waits for a server to list its tools for the first time."""
ASK_AGAIN_S = 60.0
"""Seconds after which a server that lists nothing is asked again for a run."""
SERVER_GONE = ("unavailable", "broken_off", "network", "stale")
"""Kinds of failures after which a request may have been carried out."""


class McpTool:
    """A tool of a server (protocol Tool)."""

    side_effect_class = "unknown"

    def __init__(self, servers: McpServers, server: Server, listed: ListedTool) -> None:
        self.name = visible_name(server.name, listed.name)
        self.description = listed.description
        self.input_schema: Mapping[str, Any] = listed.input_schema
        self.timeout_s = server.block.timeout_seconds + GRACE_S
        self.credential_references = stored_references(server.block.headers)
        self._servers = servers
        self._server = server
        self._listed = listed
        self._effect = effect_of(server.block, listed)

    @cached_property
    def _schema(self) -> CompiledSchema:
        return compile_schema(self.input_schema)

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return self._effect

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the server's result. Raises Transient and Permanent, when nothing was done."""
        problems = self._schema.find_problems(dict(arguments))
        if problems:
            text = f"{self.name} was not called: {'; '.join(map(str, problems))}"
            return ToolResult(text=text, is_error=True)
        try:
            return await self._send(arguments, context)
        except SessionLost:
            self._servers.forget(self._server, _values_of(context))
            return await self._send(arguments, context)
        except NotSent:
            raise
        except Transient as error:
            if self._effect in (EffectClass.PURE, EffectClass.READ) or error.kind not in SERVER_GONE:
                raise
            return ToolResult(
                text=f"outcome unknown: {error}. {self.name} may have had its effect. Check before you repeat it.",
                is_error=True,
                is_unknown=True,
            )

    async def _send(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        answers = context.answers
        if answers and answers[-1].is_held:
            if answers[-1].status != CANCELLED:  # otherwise the call was lost with its process, and is made again
                return await self._go_on(answers[-1])
            answers = ()
        session = await self._servers.session(self._server, _values_of(context))
        return await session.call_tool(
            self._listed.name,
            arguments,
            timeout_s=self._server.block.timeout_seconds,
            key=context.idempotency_key,
            answers=answers,
            ask_ms=self._server.block.question_timeout_seconds * 1_000,
        )

    async def _go_on(self, answer: GivenAnswer) -> ToolResult:
        """Return the result of a call that was held while a person was asked, or its next question."""
        go_on = self._servers.held.take(answer)
        if go_on is None:
            raise Transient("the process that held the call open for the answer no longer does", kind="broken_off")
        return await go_on(to_response(answer))


class UnlistedTool:
    """A tool of a server that has not listed its tools yet: it is asked at the first call."""

    description = ""
    side_effect_class = "unknown"
    input_schema: Mapping[str, Any] = {"type": "object"}

    def __init__(self, servers: McpServers, server: Server, name: str) -> None:
        self.name = name
        self.timeout_s = server.block.timeout_seconds + GRACE_S
        self.credential_references = stored_references(server.block.headers)
        self._servers = servers
        self._server = server

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.UNSAFE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the server's result. Raises Transient and Permanent."""
        listed = await self._servers.discover(self._server, "first_use", _values_of(context))
        tool = next((one for one in listed.tools if visible_name(self._server.name, one.name) == self.name), None)
        if tool is None:
            there = ", ".join(visible_name(self._server.name, one.name) for one in listed.tools[:20]) or "none"
            raise Permanent(f"{self._server.name} lists no tool {self.name}; its tools are: {there}", kind="not_found")
        return await McpTool(self._servers, self._server, tool).call(arguments, context)


class ToolsOfTenant:
    """Protocol loomlog.services.families.ports.tenant_tools.TenantTools."""

    def __init__(self, servers: McpServers, tenant: str) -> None:
        self.revision = servers.revision
        self.tools: dict[str, Tool] = {}
        self.digests: dict[str, str] = {}
        """Hash of the list of each server, by the part of its name in the names of its tools."""
        self._servers = servers
        self.unlisted: dict[str, Server] = {}
        """Servers that have listed nothing, by the part of their names in the names of their tools."""
        for server in servers.servers(tenant):
            listed = servers.tools(server)
            if listed.tools:
                self.digests[server_part(server.name)] = listed.digest
            else:
                self.unlisted[server_part(server.name)] = server
            for one in listed.tools:
                tool = McpTool(servers, server, one)
                self.tools.setdefault(tool.name, tool)
        self.specs = lru_cache(maxsize=SPECS_MAX)(self._specs)

    def _specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        return build_specs(self.tools, names)

    def find(self, name: str) -> Tool | None:
        """Return a tool; of a server that has listed nothing yet, one that asks it."""
        if name in self.tools:
            return self.tools[name]
        server = self.unlisted.get(server_of(name)) if self.unlisted else None
        return None if server is None else UnlistedTool(self._servers, server, name)

    @property
    def has_servers(self) -> bool:
        """Whether there is any server, listed or not."""
        return bool(self.tools or self.unlisted)

    def shown_lists(self, specs: tuple[ToolSpec, ...]) -> dict[str, str]:
        """Return the hashes of the lists that these tools are of, by server."""
        shown = {server_of(spec.name) for spec in specs if spec.name in self.tools}
        return {server: self.digests[server] for server in sorted(shown)}


class McpTools:
    """Protocol loomlog.services.families.ports.tenant_tools.ToolsOfTenants. Built again when a list has changed."""

    def __init__(self, servers: McpServers, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._now_s = now_s
        self._asked_s: dict[str, float] = {}
        """When a server that has listed nothing was last asked for a run, by aggregate."""
        self._tenants: OrderedDict[str, ToolsOfTenant] = OrderedDict()

    def for_tenant(self, tenant: str) -> ToolsOfTenant:
        """Return the tools that a tenant's runs may use now."""
        known = self._tenants.get(tenant)
        if known is None or known.revision != self._servers.revision:
            known = self._tenants[tenant] = ToolsOfTenant(self._servers, tenant)
            if len(self._tenants) > TENANTS_MAX:
                self._tenants.popitem(last=False)
        return known

    async def prepare(self, tenant: str, names: tuple[str, ...]) -> None:
        """Ask the servers that have listed nothing yet, of those whose tools are granted; not again for a while."""
        unlisted = self.for_tenant(tenant).unlisted
        if not unlisted:
            return
        due = [
            server
            for part, server in unlisted.items()
            if any(name.startswith(f"{TOOL_PREFIX}{part}{SEPARATOR}") for name in names)
            and self._now_s() - self._asked_s.get(server.aggregate, -ASK_AGAIN_S) >= ASK_AGAIN_S
        ]
        for server in due:
            self._asked_s[server.aggregate] = self._now_s()
        await asyncio.gather(*map(self._ask, due))

    async def _ask(self, server: Server) -> None:
        try:
            async with asyncio.timeout(PREPARE_TIMEOUT_S):
                await self._servers.discover(server, "first_use")
        except (ConnectorError, TimeoutError) as error:
            log.warning("a run uses no tools of %s: %s", server.name, error or "it did not list them in time")


class EndCalls:
    """Protocol loomlog.services.families.ports.run_ends.ToolCaller. Calls have stored credentials, and none that came
    with the run, which are gone by then.
    """

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def call(self, run: EndedRun, server: str, tool: str, arguments: Any) -> ToolResult:
        """Return the result. Raises ConnectorError."""
        resolved = self._servers.find(run.tenant, server)
        if resolved is None:
            raise Permanent(f"there is no MCP server {server[:80]}", kind="not_found")
        if resolved.block.tools and tool not in resolved.block.tools:
            raise Permanent(f"{tool[:80]} is not among the `tools` of {resolved.name}", kind="forbidden")
        if not isinstance(arguments, dict):
            return ToolResult(text="args: expected an object", is_error=True)
        root_run_id = root_of(run.facts)
        user = CredentialUser(
            tenant=run.tenant,
            user=run.facts.user_id,
            agent=run.facts.definition.name,
            purpose=f"hook {server}",
            run_id=root_run_id,
        )
        values = await self._servers.stored_values(resolved, user, root_run_id=root_run_id)
        timeout_s = resolved.block.timeout_seconds
        with masked_errors(values.credentials):
            session = await self._servers.session(resolved, values)
            result = await session.call_tool(tool, arguments, timeout_s=timeout_s, key=run.command_id)
        return replace(result, text=mask_credentials(values.credentials.values(), result.text))


def server_of(name: str) -> str:
    """Return the server's part of the name of one of its tools."""
    return name.removeprefix(TOOL_PREFIX).partition(SEPARATOR)[0] if name.startswith(TOOL_PREFIX) else ""


def _values_of(context: ToolContext) -> RunValues:
    return RunValues(
        root_run_id=context.root_run_id, tenant=context.tenant, credentials=context.credentials, user=context.user_id
    )
