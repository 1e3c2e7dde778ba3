"""Records of the namespace loom.consolidation.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import BlobRef, MemorySource
from loomlog.schemas.records import Record


class ChatSettled(Record, frozen=True, kw_only=True):
    """A chat of the target has settled since its last pass."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.ChatSettled"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
        )


class ConsolidationRequested(Record, frozen=True, kw_only=True):
    """A run of the consolidator is to start."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.ConsolidationRequested"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    run_id: str
    """Id of that run."""
    attempt: int
    """Number of the start since the last progress, from 1."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "run_id": self.run_id,
            "attempt": self.attempt,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            run_id=value["run_id"],
            attempt=value["attempt"],
        )


class PendingAcked(Record, frozen=True, kw_only=True):
    """Pending entries were removed: they are in memory."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.PendingAcked"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    ids: tuple[str, ...]
    """The entries; at most 100."""
    numbers: tuple[int, ...]
    """Their numbers, in the same order."""
    pending: int
    """Entries that are pending after it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "owner": self.owner,
            "ids": self.ids,
            "numbers": self.numbers,
            "pending": self.pending,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            owner=value["owner"],
            ids=tuple(value["ids"]),
            numbers=tuple(value["numbers"]),
            pending=value["pending"],
        )


class PendingBanked(Record, frozen=True, kw_only=True):
    """Dialogue was kept until the consolidator reads it."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.PendingBanked"
    CONTENT: ClassVar[Mapping[str, str]] = {"payload": "text"}

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    pending_id: str
    """Id of the entry, mp_..."""
    number: int
    """Number of the entry in its target, from 1."""
    payload_bytes: int
    """Bytes of the payload in plaintext."""
    origin: str
    """agent_explicit, operator or compaction."""
    pending: int
    """Entries that are pending after it."""
    payload: str = ''
    """JSON text; user content. Empty when it is in the blob store."""
    payload_blob: BlobRef | None = None
    """The payload when it is too long for the event."""
    source: MemorySource | None = None
    """Who kept it, from which run."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "pending_id": self.pending_id,
            "number": self.number,
            "payload": self.payload,
            "payload_blob": None if self.payload_blob is None else self.payload_blob.to_avro(),
            "payload_bytes": self.payload_bytes,
            "origin": self.origin,
            "source": None if self.source is None else self.source.to_avro(),
            "pending": self.pending,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            pending_id=value["pending_id"],
            number=value["number"],
            payload=value["payload"],
            payload_blob=None if value["payload_blob"] is None else BlobRef.from_avro(value["payload_blob"]),
            payload_bytes=value["payload_bytes"],
            origin=value["origin"],
            source=None if value["source"] is None else MemorySource.from_avro(value["source"]),
            pending=value["pending"],
        )


class TargetAdvanced(Record, frozen=True, kw_only=True):
    """The watermark of a target was moved."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.TargetAdvanced"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    watermark_at_ms: int
    """When the chat was completed, UTC milliseconds."""
    watermark_session_id: str
    """Session of the chat."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "owner": self.owner,
            "watermark_at_ms": self.watermark_at_ms,
            "watermark_session_id": self.watermark_session_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            owner=value["owner"],
            watermark_at_ms=value["watermark_at_ms"],
            watermark_session_id=value["watermark_session_id"],
        )


class TargetDropped(Record, frozen=True, kw_only=True):
    """A target has no work and no lease any more; its pending entries were removed before. The watermark stays."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.TargetDropped"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    dropped_pending: int
    """Pending entries that were removed."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "dropped_pending": self.dropped_pending,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            dropped_pending=value["dropped_pending"],
        )


class TargetLeased(Record, frozen=True, kw_only=True):
    """The lease of a target was asked for."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.TargetLeased"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    is_acquired: bool
    """Whether it was given; it is not while another run has it."""
    owner: str
    """Run that has it now."""
    expires_at_ms: int
    """Until when, UTC milliseconds."""
    watermark_at_ms: int = 0
    """When the last chat behind the watermark was completed, UTC milliseconds; 0: none."""
    watermark_session_id: str = ''
    """Session of that chat."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "is_acquired": self.is_acquired,
            "owner": self.owner,
            "expires_at_ms": self.expires_at_ms,
            "watermark_at_ms": self.watermark_at_ms,
            "watermark_session_id": self.watermark_session_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            is_acquired=value["is_acquired"],
            owner=value["owner"],
            expires_at_ms=value["expires_at_ms"],
            watermark_at_ms=value["watermark_at_ms"],
            watermark_session_id=value["watermark_session_id"],
        )


class TargetReleased(Record, frozen=True, kw_only=True):
    """The lease of a target was given back."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.TargetReleased"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    has_more: bool = False
    """Whether work is left."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "owner": self.owner,
            "has_more": self.has_more,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            owner=value["owner"],
            has_more=value["has_more"],
        )


RECORDS = (
    ChatSettled,
    ConsolidationRequested,
    PendingAcked,
    PendingBanked,
    TargetAdvanced,
    TargetDropped,
    TargetLeased,
    TargetReleased,
)
Event = ChatSettled | ConsolidationRequested | PendingAcked | PendingBanked | TargetAdvanced | TargetDropped | TargetLeased | TargetReleased
