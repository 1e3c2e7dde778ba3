"""Calls of tools after the ends of runs.

Before: services/runtime/run/end_hooks.py. After: services/families/mcp/tools.py.
"""

from typing import Any, Protocol

from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.records import Value


class EndCall(Value, frozen=True, kw_only=True):
    """A call of a tool of a server after the end of a run."""

    tenant: str
    root_run_id: str
    idempotency_key: str
    server: str
    tool: str
    user_id: str = ""
    agent: str = ""


class ToolCaller(Protocol):
    """Calls tools of servers."""

    async def call(self, call: EndCall, arguments: Any) -> ToolResult:
        """Return the result. Raises ConnectorError; NotSent when nothing was done."""
        ...
