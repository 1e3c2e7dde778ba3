"""The running server as runs see it: its version and addresses, and which features it has.

Before: the settings of services/runtime. After: context.py, tool_guide.py.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

FEATURE_TOOLS = {"bash": "Bash", "bashbox": "Bashbox", "documents": "Document", "memory_layer": "Memory"}
"""Features that a server has when it has their tool."""
ABSENT_FEATURES = ("retention", "sandbox")
"""Features of the wire contract that this version does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInfo:
    """What the server's memory can do."""

    embedder: Mapping[str, Any] | None = None
    """provider, model and dimension, as far as they are configured; None: nothing is found by its meaning."""
    sql: bool = False
    consolidator: bool = False
    """Whether there is the agent that learns from chats."""
    bands: Mapping[str, float] = field(default_factory=dict)
    """merge_threshold and related_threshold: similarities of facts."""
    verify_writes: bool = False
    detect_conflicts: bool = False


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
    scheduler: bool = False
    """Schedules fire here."""
    webhooks: bool = False
    """Webhooks take requests here."""
    memory: MemoryInfo = MemoryInfo()


def describe_capabilities(server: ServerInfo, tools: Container[str]) -> dict[str, Any]:
    """Return the features of the server with `tools`, each with `available`; no secrets, no topology."""
    memory, has_memory = server.memory, FEATURE_TOOLS["memory_layer"] in tools
    features = {
        **dict.fromkeys(ABSENT_FEATURES, False),
        **{feature: tool in tools for feature, tool in FEATURE_TOOLS.items()},
        "code_js": server.code_agents,
        "scheduler": server.scheduler,
        "webhooks": server.webhooks,
        "full_text_memory": has_memory,
        "sql_memory": has_memory and memory.sql,
        "vector_memory": has_memory and memory.embedder is not None,
    }
    capabilities: dict[str, Any] = {name: {"available": features[name]} for name in sorted(features)}
    capabilities["search"] = {"available": "WebSearch" in tools, "providers": []}
    if features["vector_memory"]:
        capabilities["vector_memory"]["embedder"] = memory.embedder
    capabilities["consolidation"] = {
        "available": has_memory and memory.consolidator,
        "configured": memory.consolidator,
        **memory.bands,
        "verify_writes": memory.verify_writes,
        "detect_conflicts": memory.detect_conflicts,
    }
    limits = {"max_request_bytes": server.max_request_bytes}
    return capabilities | ({"limits": limits} if server.max_request_bytes else {})
