"""What is done in the name of a run that has ended.

Before: services/runtime/run/end_hooks.py. After: services/families/memory/run_entries.py,
services/families/channel/run_messages.py, services/families/mcp/tools.py.
"""

from typing import Any, Protocol

from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.records import Value
from loomlog.services.core.run.run_facts import RunFacts

TRIES_MS = 600_000
"""How long after the end it is tried what only another installation can do."""


class EndedRun(Value, frozen=True, kw_only=True):
    """A run in whose name something is done."""

    tenant: str
    facts: RunFacts
    command_id: str
    """The same for every attempt."""
    ended_at_ms: int


class EntryWriter(Protocol):
    """Writes entries of memory."""

    async def set_entry(self, run: EndedRun, scope: str, key: str, value: Any, *, agent: str = "") -> None:
        """Set a key in the memory of the run's user, of the tenant or of an agent; without `agent`, of that of the run.

        Raises Refused, Unavailable.
        """
        ...


class MessagePublisher(Protocol):
    """Publishes messages to channels."""

    async def publish(self, run: EndedRun, channel: str, value: Any) -> None:
        """Publish a message for the user of the run. Raises Refused, Unavailable."""
        ...


class ToolCaller(Protocol):
    """Calls tools of servers."""

    async def call(self, run: EndedRun, server: str, tool: str, arguments: Any) -> ToolResult:
        """Return the result. Raises ConnectorError; NotSent when nothing was done."""
        ...
