"""Records of the namespace loom.memory.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import MemorySource, Provenance
from loomlog.schemas.records import Record


class EntriesExpired(Record, frozen=True, kw_only=True):
    """Keys of a memory scope were removed because their time was over."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntriesExpired"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    keys: tuple[str, ...]
    """The keys; at most 100."""
    revision: int
    """Number of this change in the scope."""
    usage_bytes: int
    """Bytes of the scope after it."""
    usage_keys: int
    """Keys of the scope after it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "keys": self.keys,
            "revision": self.revision,
            "usage_bytes": self.usage_bytes,
            "usage_keys": self.usage_keys,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            keys=tuple(value["keys"]),
            revision=value["revision"],
            usage_bytes=value["usage_bytes"],
            usage_keys=value["usage_keys"],
        )


class EntryDeleted(Record, frozen=True, kw_only=True):
    """A key of a memory scope was deleted."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntryDeleted"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key."""
    revision: int
    """Number of this change in the scope."""
    previous_revision: int
    """Revision that was deleted."""
    source: MemorySource
    """Who deleted it."""
    usage_bytes: int
    """Bytes of the scope after it."""
    usage_keys: int
    """Keys of the scope after it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "key": self.key,
            "revision": self.revision,
            "previous_revision": self.previous_revision,
            "source": self.source.to_avro(),
            "usage_bytes": self.usage_bytes,
            "usage_keys": self.usage_keys,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            key=value["key"],
            revision=value["revision"],
            previous_revision=value["previous_revision"],
            source=MemorySource.from_avro(value["source"]),
            usage_bytes=value["usage_bytes"],
            usage_keys=value["usage_keys"],
        )


class EntrySet(Record, frozen=True, kw_only=True):
    """A key of a memory scope was set."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntrySet"
    CONTENT: ClassVar[Mapping[str, str]] = {"value": "text", "embed_text": "text"}

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key."""
    value: str
    """JSON text of the value; user content."""
    value_bytes: int
    """Bytes of the value in plaintext."""
    revision: int
    """Number of this change in the scope."""
    created_at_s: int
    """When the key was set first, UTC seconds."""
    source: MemorySource
    """Who changed it."""
    usage_bytes: int
    """Bytes of the scope after it."""
    usage_keys: int
    """Keys of the scope after it."""
    quota_bytes: int
    """Most bytes of the scope; -1: no bound."""
    previous_revision: int = 0
    """Revision that it replaced; 0: none."""
    expires_at_ms: int = 0
    """When it expires, UTC milliseconds; 0: never."""
    op: str = 'set'
    """Operation of which it is the outcome."""
    dropped: int = 0
    """For bounded_list: items that were dropped."""
    embed: bool = False
    """Whether it is to be found by meaning."""
    embed_text: str = ''
    """Text to embed instead of the value; user content."""
    provenance: Provenance | None = None
    """What it is and where it was learnt; null for a note."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "key": self.key,
            "value": self.value,
            "value_bytes": self.value_bytes,
            "revision": self.revision,
            "previous_revision": self.previous_revision,
            "created_at_s": self.created_at_s,
            "expires_at_ms": self.expires_at_ms,
            "op": self.op,
            "dropped": self.dropped,
            "embed": self.embed,
            "embed_text": self.embed_text,
            "provenance": None if self.provenance is None else self.provenance.to_avro(),
            "source": self.source.to_avro(),
            "usage_bytes": self.usage_bytes,
            "usage_keys": self.usage_keys,
            "quota_bytes": self.quota_bytes,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            key=value["key"],
            value=value["value"],
            value_bytes=value["value_bytes"],
            revision=value["revision"],
            previous_revision=value["previous_revision"],
            created_at_s=value["created_at_s"],
            expires_at_ms=value["expires_at_ms"],
            op=value["op"],
            dropped=value["dropped"],
            embed=value["embed"],
            embed_text=value["embed_text"],
            provenance=None if value["provenance"] is None else Provenance.from_avro(value["provenance"]),
            source=MemorySource.from_avro(value["source"]),
            usage_bytes=value["usage_bytes"],
            usage_keys=value["usage_keys"],
            quota_bytes=value["quota_bytes"],
        )


class EntrySuperseded(Record, frozen=True, kw_only=True):
    """A key of a memory scope was archived."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntrySuperseded"
    CONTENT: ClassVar[Mapping[str, str]] = {"reason": "text"}

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key."""
    revision: int
    """Number of this change in the scope."""
    previous_revision: int
    """Revision that was archived; its value stays."""
    source: MemorySource
    """Who archived it."""
    by_key: str = ''
    """Key that takes its place; empty: none."""
    reason: str = ''
    """Why; user content."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "key": self.key,
            "revision": self.revision,
            "previous_revision": self.previous_revision,
            "by_key": self.by_key,
            "reason": self.reason,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            key=value["key"],
            revision=value["revision"],
            previous_revision=value["previous_revision"],
            by_key=value["by_key"],
            reason=value["reason"],
            source=MemorySource.from_avro(value["source"]),
        )


class ScopeDropped(Record, frozen=True, kw_only=True):
    """Keys of a memory scope were deleted with it."""

    SCHEMA: ClassVar[str] = "loom.memory.events.ScopeDropped"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    keys: tuple[str, ...]
    """The keys; at most 100: a larger scope has several such events."""
    more: bool
    """Whether further events follow."""
    revision: int
    """Number of this change in the scope."""
    dropped_keys: int
    """Keys deleted so far by the command."""
    dropped_bytes: int
    """Their bytes."""
    source: MemorySource
    """Who dropped it."""
    reason: str = ''
    """Why."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "keys": self.keys,
            "more": self.more,
            "revision": self.revision,
            "dropped_keys": self.dropped_keys,
            "dropped_bytes": self.dropped_bytes,
            "reason": self.reason,
            "source": self.source.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            keys=tuple(value["keys"]),
            more=value["more"],
            revision=value["revision"],
            dropped_keys=value["dropped_keys"],
            dropped_bytes=value["dropped_bytes"],
            reason=value["reason"],
            source=MemorySource.from_avro(value["source"]),
        )


RECORDS = (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
Event = EntriesExpired | EntryDeleted | EntrySet | EntrySuperseded | ScopeDropped
