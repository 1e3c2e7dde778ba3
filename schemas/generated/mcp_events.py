"""Records of the namespace loom.mcp.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.records import Record


class ListingFailed(Record, frozen=True, kw_only=True):
    """An MCP server did not list its tools; those listed before stay."""

    SCHEMA: ClassVar[str] = "loom.mcp.events.ListingFailed"

    server: str
    """Name of the server."""
    def_id: str
    """Version of the server's definition that was asked."""
    error: str
    """Why there is no list, without values of headers."""
    source: str
    """Why the server was asked, as in RecordTools."""
    reason: str = ''
    """Kind of the failure: needs_authorization, or empty."""


class ToolsListed(Record, frozen=True, kw_only=True):
    """An MCP server lists other tools than before."""

    SCHEMA: ClassVar[str] = "loom.mcp.events.ToolsListed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "server", "def_id", "revision", "digest", "tools", "problems", "source",
    )

    server: str
    """Name of the server."""
    def_id: str
    """Version of the server's definition that was asked."""
    revision: str
    """Negotiated revision of the protocol."""
    digest: str
    """Hash of the usable tools, hex SHA-256."""
    tools: str
    """The usable tools as a JSON list: name, description, inputSchema, annotations."""
    source: str
    """Why the server was asked: start, first_use, list_changed, definition or probe."""
    problems: tuple[str, ...] = ()
    """Why other tools were left out."""


RECORDS = (
    ListingFailed,
    ToolsListed,
)
Event = ListingFailed | ToolsListed
