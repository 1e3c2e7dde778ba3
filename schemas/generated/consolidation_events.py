"""Records of the namespace loom.consolidation.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import BlobRef, MemorySource
from loomlog.schemas.records import Record


class ChatSettled(Record, frozen=True, kw_only=True):
    """A chat of the target has settled since its last pass."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.ChatSettled"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""


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


class PendingBanked(Record, frozen=True, kw_only=True):
    """Dialogue was kept until the consolidator reads it."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.PendingBanked"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "pending_id", "number", "payload", "payload_blob", "payload_bytes", "origin", "source",
        "pending",
    )
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


class TargetDropped(Record, frozen=True, kw_only=True):
    """A target has no work and no lease any more; its pending entries were removed before. The watermark stays."""

    SCHEMA: ClassVar[str] = "loom.consolidation.events.TargetDropped"

    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    dropped_pending: int
    """Pending entries that were removed."""


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
