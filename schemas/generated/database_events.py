"""Records of the namespace loom.database.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import BlobRef, MemorySource
from loomlog.schemas.records import Record


class SqlChanged(Record, frozen=True, kw_only=True):
    """A statement changed a database, or kept its transaction open."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlChanged"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "revision": self.revision,
            "previous_revision": self.previous_revision,
            "chain": self.chain,
            "page_count": self.page_count,
            "pages": self.pages,
            "blobs": [item.to_avro() for item in self.blobs],
            "packed_bytes": self.packed_bytes,
            "statement": self.statement,
            "rows_affected": self.rows_affected,
            "last_insert_id": self.last_insert_id,
            "quota_bytes": self.quota_bytes,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            revision=value["revision"],
            previous_revision=value["previous_revision"],
            chain=value["chain"],
            page_count=value["page_count"],
            pages=value["pages"],
            blobs=tuple(BlobRef.from_avro(item) for item in value["blobs"]),
            packed_bytes=value["packed_bytes"],
            statement=value["statement"],
            rows_affected=value["rows_affected"],
            last_insert_id=value["last_insert_id"],
            quota_bytes=value["quota_bytes"],
            source=MemorySource.from_avro(value["source"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "revision": self.revision,
            "chain": self.chain,
            "copy_chain": self.copy_chain,
            "page_count": self.page_count,
            "pages": self.pages,
            "blobs": [item.to_avro() for item in self.blobs],
            "packed_bytes": self.packed_bytes,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            revision=value["revision"],
            chain=value["chain"],
            copy_chain=value["copy_chain"],
            page_count=value["page_count"],
            pages=value["pages"],
            blobs=tuple(BlobRef.from_avro(item) for item in value["blobs"]),
            packed_bytes=value["packed_bytes"],
        )


class SqlDropped(Record, frozen=True, kw_only=True):
    """A database was deleted."""

    SCHEMA: ClassVar[str] = "loom.database.events.SqlDropped"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "revision": self.revision,
            "bytes": self.bytes,
            "reason": self.reason,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            revision=value["revision"],
            bytes=value["bytes"],
            reason=value["reason"],
            source=MemorySource.from_avro(value["source"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "first": self.first,
            "last": self.last,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            first=value["first"],
            last=value["last"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "depth": self.depth,
            "revision": self.revision,
            "idle_ms": self.idle_ms,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            depth=value["depth"],
            revision=value["revision"],
            idle_ms=value["idle_ms"],
            source=MemorySource.from_avro(value["source"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "depth": self.depth,
            "committed": self.committed,
            "reason": self.reason,
            "revision": self.revision,
            "chain": self.chain,
            "page_count": self.page_count,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            depth=value["depth"],
            committed=value["committed"],
            reason=value["reason"],
            revision=value["revision"],
            chain=value["chain"],
            page_count=value["page_count"],
        )


RECORDS = (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionBegan,
    SqlTransactionEnded,
)
Event = SqlChanged | SqlCopied | SqlDropped | SqlRowsRemoved | SqlTransactionBegan | SqlTransactionEnded
