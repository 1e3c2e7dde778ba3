"""What repeating a call of a tool does: decides what happens to a call that was lost with its process. Pure.

Unsafe unless the definition says otherwise, or trusts what the server claims: its claims are a stranger's.

Before: handlers.py, tools.py.
"""

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.mcp.tool_list import ListedTool
from loomlog.connectors.protocols import EffectClass


def effect_of(server: McpServerBlock, tool: ListedTool) -> EffectClass:
    """Return the effect class of a tool's calls."""
    if tool.name in server.effects:
        return EffectClass(server.effects[tool.name])
    return EffectClass(tool.effect) if server.trust_annotations else EffectClass.UNSAFE
