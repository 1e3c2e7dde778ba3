"""The running server as runs see it: its version and addresses, and which features it has.

Before: the settings of services/runtime. After: context.py, tool_guide.py.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

FEATURE_TOOLS = {"bash": "Bash", "bashbox": "Bashbox", "documents": "Document", "memory_layer": "Memory"}
"""Features that a server has when it has their tool."""
ABSENT_FEATURES = ("full_text_memory", "retention", "sandbox", "scheduler", "sql_memory", "vector_memory", "webhooks")
"""Features of the wire contract that this version does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The running server's description of itself."""

    version: str = ""
    commit: str = ""
    build_time: str = ""
    listen_addr: str = ""
    url: str = ""
    code_agents: bool = False
    """Agents whose turns are code may run here."""
    max_request_bytes: int = 0
    """Largest request body of the API; 0 = not known here."""


def describe_capabilities(server: ServerInfo, tools: Container[str]) -> dict[str, Any]:
    """Return the features of the server with `tools`, each with `available`; no secrets, no topology."""
    features = {
        **dict.fromkeys(ABSENT_FEATURES, False),
        **{feature: tool in tools for feature, tool in FEATURE_TOOLS.items()},
        "code_js": server.code_agents,
    }
    capabilities: dict[str, Any] = {name: {"available": features[name]} for name in sorted(features)}
    capabilities["search"] = {"available": "WebSearch" in tools, "providers": []}
    capabilities["consolidation"] = {"available": False, "configured": False}
    limits = {"max_request_bytes": server.max_request_bytes}
    return capabilities | ({"limits": limits} if server.max_request_bytes else {})
