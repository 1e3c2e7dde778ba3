"""Records of the namespace loom.mcp.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class RecordListingFailure(Record, frozen=True, kw_only=True):
    """Records that an MCP server did not list its tools."""

    SCHEMA: ClassVar[str] = "loom.mcp.commands.RecordListingFailure"

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for a server of the files."""
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


class RecordTools(Record, frozen=True, kw_only=True):
    """Records the tools that an MCP server lists."""

    SCHEMA: ClassVar[str] = "loom.mcp.commands.RecordTools"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "server", "def_id", "revision", "digest", "tools", "problems", "source",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id; the tenant is empty for a server of the files."""
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
    RecordListingFailure,
    RecordTools,
)
Command = RecordListingFailure | RecordTools
