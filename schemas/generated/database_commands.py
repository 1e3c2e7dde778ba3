"""Records of the namespace loom.database.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, MemorySource
from loomlog.schemas.records import Record


class BeginTransaction(Record, frozen=True, kw_only=True):
    """Begins a transaction of a tree of runs, or a nested one."""

    SCHEMA: ClassVar[str] = "loom.database.commands.BeginTransaction"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "root_run_id", "depth_max", "idle_ms", "source",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    root_run_id: str
    """Root of the tree of runs."""
    source: MemorySource
    """Who changes it."""
    depth_max: int = 16
    """Most transactions inside of each other."""
    idle_ms: int = 30000
    """Milliseconds without a statement after which it is rolled back."""


class ChangeDatabase(Record, frozen=True, kw_only=True):
    """Adds to a database what a statement wrote, or tells that it has failed."""

    SCHEMA: ClassVar[str] = "loom.database.commands.ChangeDatabase"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "root_run_id", "base_revision", "base_chain", "chain", "page_count", "pages",
        "blobs", "packed_bytes", "statement", "rows_affected", "last_insert_id", "quota_bytes", "refusal", "source",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"pages": "text", "statement": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    base_revision: int
    """Revision of the database that the statement was carried out on."""
    base_chain: str
    """Chain value of that revision, 64 hex digits."""
    quota_bytes: int
    """Most bytes of the database."""
    source: MemorySource
    """Who changes it."""
    root_run_id: str = ''
    """Root of the tree of runs whose transaction it is part of; empty: of none."""
    chain: str = ''
    """Chain value after the change; empty when nothing was written."""
    page_count: int = 0
    """Pages of the file after it."""
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
    refusal: str = ''
    """Why it was not carried out, a code of errors: it is recorded under the id of the command; empty: it was."""


class DropDatabase(Record, frozen=True, kw_only=True):
    """Deletes a database."""

    SCHEMA: ClassVar[str] = "loom.database.commands.DropDatabase"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "reason", "source",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    source: MemorySource
    """Who changes it."""
    reason: str = ''
    """Why."""


class EndTransaction(Record, frozen=True, kw_only=True):
    """Ends the innermost transaction of a tree of runs."""

    SCHEMA: ClassVar[str] = "loom.database.commands.EndTransaction"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user, tenant or run."""
    scope_id: str
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""
    root_run_id: str
    """Root of the tree of runs."""
    committed: bool
    """Whether its changes stay."""
    source: MemorySource
    """Who changes it."""


class PutCopy(Record, frozen=True, kw_only=True):
    """Adds a full copy of a database, so that changes before it are not needed any more."""

    SCHEMA: ClassVar[str] = "loom.database.commands.PutCopy"
    CONTENT: ClassVar[Mapping[str, str]] = {"pages": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
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


RECORDS = (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
Command = BeginTransaction | ChangeDatabase | DropDatabase | EndTransaction | PutCopy
