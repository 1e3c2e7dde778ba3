"""What a server listed, as every process has it, and the fold.

One aggregate for each server of a tenant; the servers of the files are of no tenant.

Before: decide.py. After: servers.py gives the tools to runs.
"""

from loomlog.schemas.generated.mcp_events import ListingFailed, ToolsListed
from loomlog.schemas.records import Value, copy_as

NAME = "mcp"
"""Name of the family."""
VERSION = 1
NEEDS_AUTHORIZATION = "needs_authorization"
"""Reason of a failure: the server asks for a token, and there was none that it takes."""
FILES_TENANT = ""
"""Tenant of the servers of the configuration files."""

McpEvent = ToolsListed | ListingFailed


class ServerTools(Value, frozen=True):
    """The tools that a server listed last, and the last failure since."""

    server: str = ""
    def_id: str = ""
    """Version of the definition that was asked."""
    revision: str = ""
    digest: str = ""
    tools: str = "[]"
    """JSON list."""
    problems: tuple[str, ...] = ()
    listed_at_ms: int = 0
    error: str = ""
    """Why the newest attempt gave no list; empty when it did."""
    failed_at_ms: int = 0
    reason: str = ""
    """Kind of that failure: NEEDS_AUTHORIZATION, or empty."""


def evolve(state: ServerTools, event: McpEvent, at_ms: int) -> ServerTools:
    """Return the state after an event."""
    match event:
        case ToolsListed():
            return copy_as(ServerTools, event, listed_at_ms=at_ms)
        case ListingFailed():
            return copy_as(
                ServerTools, state, server=event.server, error=event.error, failed_at_ms=at_ms, reason=event.reason
            )
