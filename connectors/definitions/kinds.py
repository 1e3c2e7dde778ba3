"""The kinds of definitions with versions. A further kind is a file with its block and a line here.

Before: one module for each kind. After: routes, tools and the command line are made of this table.
"""

from collections.abc import Mapping

from loomlog.connectors.definitions.a2a import A2A_AGENT, A2A_SERVER_CARD
from loomlog.connectors.definitions.agent import AGENT
from loomlog.connectors.definitions.document_source import DOCUMENT_SOURCE
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.mcp_server import MCP_SERVER
from loomlog.connectors.definitions.memory_backend import MEMORY_BACKEND
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.connectors.definitions.skill import SKILL
from loomlog.connectors.definitions.team import TEAM
from loomlog.connectors.definitions.webhook import WEBHOOK

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        AGENT,
        SKILL,
        TEAM,
        MCP_SERVER,
        SCHEDULE,
        WEBHOOK,
        MEMORY_BACKEND,
        DOCUMENT_SOURCE,
        A2A_AGENT,
        A2A_SERVER_CARD,
    )
}
_BY_ROUTE = {kind.route: kind for kind in KINDS.values()}
_BY_TOOL = {kind.tool: kind for kind in KINDS.values()}


def kind_of_route(route: str) -> Kind:
    """Return the kind of agentdef, skilldef, ... Raises KeyError."""
    return _BY_ROUTE[route]


def kind_of_tool(tool: str) -> Kind:
    """Return the kind of AgentDef, SkillDef, ... Raises KeyError."""
    return _BY_TOOL[tool]
