"""Records of the namespace loom.database.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, MemorySource
from loomlog.schemas.records import Record


class BeginTransaction(Record, frozen=True, kw_only=True):
    """Begins a transaction of a tree of runs, or a nested one."""

    SCHEMA: ClassVar[str] = "loom.database.commands.BeginTransaction"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "depth_max": self.depth_max,
            "idle_ms": self.idle_ms,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            depth_max=value["depth_max"],
            idle_ms=value["idle_ms"],
            source=MemorySource.from_avro(value["source"]),
        )


class ChangeDatabase(Record, frozen=True, kw_only=True):
    """Adds to a database what a statement wrote, or tells that it has failed."""

    SCHEMA: ClassVar[str] = "loom.database.commands.ChangeDatabase"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "base_revision": self.base_revision,
            "base_chain": self.base_chain,
            "chain": self.chain,
            "page_count": self.page_count,
            "pages": self.pages,
            "blobs": [item.to_avro() for item in self.blobs],
            "packed_bytes": self.packed_bytes,
            "statement": self.statement,
            "rows_affected": self.rows_affected,
            "last_insert_id": self.last_insert_id,
            "quota_bytes": self.quota_bytes,
            "refusal": self.refusal,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            base_revision=value["base_revision"],
            base_chain=value["base_chain"],
            chain=value["chain"],
            page_count=value["page_count"],
            pages=value["pages"],
            blobs=tuple(BlobRef.from_avro(item) for item in value["blobs"]),
            packed_bytes=value["packed_bytes"],
            statement=value["statement"],
            rows_affected=value["rows_affected"],
            last_insert_id=value["last_insert_id"],
            quota_bytes=value["quota_bytes"],
            refusal=value["refusal"],
            source=MemorySource.from_avro(value["source"]),
        )


class DropDatabase(Record, frozen=True, kw_only=True):
    """Deletes a database."""

    SCHEMA: ClassVar[str] = "loom.database.commands.DropDatabase"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "scope_id": self.scope_id,
            "reason": self.reason,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            scope_id=value["scope_id"],
            reason=value["reason"],
            source=MemorySource.from_avro(value["source"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "scope": self.scope,
            "scope_id": self.scope_id,
            "root_run_id": self.root_run_id,
            "committed": self.committed,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            scope=value["scope"],
            scope_id=value["scope_id"],
            root_run_id=value["root_run_id"],
            committed=value["committed"],
            source=MemorySource.from_avro(value["source"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
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
            envelope=CommandEnvelope.from_avro(value["envelope"]),
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


RECORDS = (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
Command = BeginTransaction | ChangeDatabase | DropDatabase | EndTransaction | PutCopy
