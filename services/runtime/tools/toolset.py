"""The tools of this process as models and calls need them: looked up by name, described, classified.

A run may also use tools of MCP servers of its tenant, and those that clients of its principal offer; these are specific
to the run: `for_principal` returns the toolset that includes them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from loomlog.connectors.configuration.mcp_block import TOOL_PREFIX
from loomlog.connectors.protocols import EffectClass, Reconciler, Tool, ToolSpec
from loomlog.connectors.tools.registry import build_specs, select_granted
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX
from loomlog.schemas.client_names import visible_name
from loomlog.services.families.ports.tenant_tools import TenantTools, ToolsOfTenants
from loomlog.services.runtime.models.model_calls import Toolset
from loomlog.services.runtime.tools.tool_calls import parse_arguments

SPECS_CACHE_MAX = 1_000
"""Lists of granted tools with cached descriptions; agents are few, and building them costs per turn."""
NO_LISTS: Mapping[str, str] = {}


ClientToolLookup = Callable[[str, str], Mapping[str, Tool]]
"""Returns the tools that clients offer to the runs of a tenant's subject now, by name."""


def no_client_tools(tenant: str, subject: str) -> Mapping[str, Tool]:
    """Return no tools."""
    return {}


class ProcessToolset:
    """Protocol loomlog.services.runtime.models.model_calls.Toolset over the tools of this process."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        client_tools: ClientToolLookup = no_client_tools,
        missing_client_tool: Callable[[str], Tool] | None = None,
        tenant_tools: ToolsOfTenants | None = None,
    ) -> None:
        """`missing_client_tool` returns a tool of a client that is not offered now: it only reports on a lost call."""
        self._client_tools = client_tools
        self._missing_client_tool = missing_client_tool
        self._tenant_tools = tenant_tools
        self._tools = tools
        # Computed once: an isinstance check of a runtime protocol takes 10 microseconds.
        self._reconcilable = frozenset(name for name, tool in tools.items() if isinstance(tool, Reconciler))
        self.specs = lru_cache(maxsize=SPECS_CACHE_MAX)(self._specs)

    def _specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        return build_specs(self._tools, names)

    def for_principal(self, tenant: str, subject: str) -> Toolset:
        """Return the toolset for a run of that principal."""
        offered = self._client_tools(tenant, subject)
        of_tenant = None if self._tenant_tools is None else self._tenant_tools.for_tenant(tenant)
        has_own = of_tenant is not None and of_tenant.has_servers
        return PrincipalToolset(self, offered, of_tenant) if offered or has_own else self

    async def prepare(self, tenant: str, names: tuple[str, ...]) -> None:
        """Ask servers whose tools are granted and not known yet."""
        if self._tenant_tools is not None:
            await self._tenant_tools.prepare(tenant, names)

    def find(self, name: str) -> Tool | None:
        if self._missing_client_tool is not None and name.startswith(CLIENT_PREFIX):
            return self._missing_client_tool(name)
        return self._tools.get(visible_name(name))

    def grants(self, names: tuple[str, ...], name: str) -> bool:
        """Return whether a list of names and patterns grants the tool, whether or not it is offered now."""
        return bool(select_granted(names, (visible_name(name),)))

    def effect_class(self, name: str, input_json: str) -> str:
        """Return the effect class of a call as the model wrote it. An unknown tool has no effect, so it is pure."""
        return _effect_class(self.find(name), input_json)

    def is_reconcilable(self, name: str) -> bool:
        """Return whether the tool can be asked about a lost call."""
        return visible_name(name) in self._reconcilable or (
            self._missing_client_tool is not None and name.startswith(CLIENT_PREFIX)
        )

    def shown_lists(self, specs: tuple[ToolSpec, ...]) -> Mapping[str, str]:
        """Return the hashes of the lists of MCP servers that these tools are of: none of them is."""
        return NO_LISTS


class PrincipalToolset:
    """Toolset of a run (a Toolset too): the common tools, those of MCP servers of its tenant, and those that clients of
    its principal offer.
    """

    def __init__(self, common: ProcessToolset, offered: Mapping[str, Tool], of_tenant: TenantTools | None) -> None:
        self._offered = offered
        self._of_tenant = of_tenant
        self._common = common
        self.is_reconcilable = common.is_reconcilable
        self.grants = common.grants
        self.prepare = common.prepare

    def for_principal(self, tenant: str, subject: str) -> Toolset:
        return self._common.for_principal(tenant, subject)

    def specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        """Return the common tools first: a prompt cache stays valid when a client connects or leaves."""
        of_servers = () if self._of_tenant is None else self._of_tenant.specs(names)
        return (*self._common.specs(names), *of_servers, *build_specs(self._offered, names))

    def find(self, name: str) -> Tool | None:
        if self._of_tenant is not None and name.startswith(TOOL_PREFIX):
            return self._of_tenant.find(name)
        return self._offered.get(name) or self._common.find(name)

    def effect_class(self, name: str, input_json: str) -> str:
        """Return the effect class of a call as the model wrote it. An unknown tool has no effect, so it is pure."""
        return _effect_class(self.find(name), input_json)

    def shown_lists(self, specs: tuple[ToolSpec, ...]) -> Mapping[str, str]:
        """Return the hashes of the lists of MCP servers that these tools are of, by server."""
        return NO_LISTS if self._of_tenant is None else self._of_tenant.shown_lists(specs)


def _effect_class(tool: Tool | None, input_json: str) -> str:
    if tool is None:
        return EffectClass.PURE.value
    return tool.effect_class(parse_arguments(input_json)).value
