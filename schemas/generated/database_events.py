"""Records of the namespace loom.database.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import BlobRef, MemorySource
from loomlog.schemas.records import Record


class SqlChanged(Record, frozen=True, kw_only=True):
    """A statement changed a database, or kept its transaction open."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlChanged"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "root_run_id", "revision", "previous_revision", "chain", "page_count", "pages", "blobs",
        "packed_bytes", "statement", "rows_affected", "last_insert_id", "quota_bytes", "source",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"pages": "text", "statement": "text"}

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    revision: int
    """Number of the change; that before it when nothing was written."""
    previous_revision: int
    """Revision that the statement was carried out on."""
    chain: str
    """Chain value after the change."""
    page_count: int
    """Pages of the file after it."""
    quota_bytes: int
    """Most bytes of the database."""
    source: MemorySource
    """Who changed it."""
    root_run_id: str = ''
    """Root of the tree of runs whose transaction it is part of; empty: of none."""
    pages: str = ''
    """Base64 of the packed pages (connectors/sqlite/pages.py); user content. Empty: they are in blobs."""
    blobs: tuple[BlobRef, ...] = ()
    """Blobs with the packed pages, as base64, in order; encrypted like `pages`."""
    packed_bytes: int = 0
    """Bytes of the packed pages."""
    statement: str = ''
    """Text of the statement; user content."""
    rows_affected: int = 0
    """Rows that it changed."""
    last_insert_id: int = 0
    """Id of the last row that it inserted; 0: none."""


class SqlCopied(Record, frozen=True, kw_only=True):
    """A full copy of a database was added."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlCopied"
    CONTENT: ClassVar[Mapping[str, str]] = {"pages": "text"}

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    revision: int
    """Revision that it is a copy of."""
    chain: str
    """Chain value of that revision."""
    copy_chain: str
    """Chain value of the copy itself, as the change of an empty file."""
    page_count: int
    """Pages of the file."""
    pages: str = ''
    """Base64 of the packed pages (connectors/sqlite/pages.py); user content. Empty: they are in blobs."""
    blobs: tuple[BlobRef, ...] = ()
    """Blobs with the packed pages, as base64, in order; encrypted like `pages`."""
    packed_bytes: int = 0
    """Bytes of the packed pages."""


class SqlDropped(Record, frozen=True, kw_only=True):
    """A database was deleted."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlDropped"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "revision", "bytes", "reason", "source",
    )

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    revision: int
    """Revision that it had."""
    bytes: int
    """Bytes that it had."""
    source: MemorySource
    """Who changed it."""
    reason: str = ''
    """Why."""


class SqlRowsRemoved(Record, frozen=True, kw_only=True):
    """Changes are not needed any more: they were rolled back, dropped, or a copy has them."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlRowsRemoved"

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    first: int
    """First of their revisions."""
    last: int
    """Last of them; at most 200 are named."""


class SqlTransactionBegan(Record, frozen=True, kw_only=True):
    """A transaction began."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlTransactionBegan"

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    root_run_id: str
    """Root of the tree of runs."""
    depth: int
    """Open transactions of the tree."""
    revision: int
    """Revision that a rollback goes back to."""
    idle_ms: int
    """Milliseconds without a statement after which it is rolled back."""
    source: MemorySource
    """Who changed it."""


class SqlTransactionEnded(Record, frozen=True, kw_only=True):
    """A transaction ended."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlTransactionEnded"

    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    root_run_id: str
    """Root of the tree of runs."""
    depth: int
    """Transactions of the tree that are still open."""
    committed: bool
    """Whether its changes stay."""
    reason: str
    """asked, idle or dropped; acknowledged: it had ended as idle, and the tree of runs knows that now."""
    revision: int
    """Revision after it."""
    chain: str
    """Chain value of that revision."""
    page_count: int
    """Pages of the file."""


RECORDS = (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionBegan,
    SqlTransactionEnded,
)
Event = SqlChanged | SqlCopied | SqlDropped | SqlRowsRemoved | SqlTransactionBegan | SqlTransactionEnded
