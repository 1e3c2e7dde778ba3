"""Records of the namespace loom.consolidation.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, MemorySource
from loomlog.schemas.records import Record


class AckPending(Record, frozen=True, kw_only=True):
    """Removes pending entries that are in memory now. Needs the lease."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.AckPending"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    ids: tuple[str, ...]
    """Ids of the entries, 1 to 200."""


class AdvanceTarget(Record, frozen=True, kw_only=True):
    """Moves the watermark of a target past a chat. Needs the lease."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.AdvanceTarget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    completed_at_ms: int
    """When the chat was completed as the server knows it, UTC milliseconds."""
    session_id: str
    """Session of the chat."""


class BankPending(Record, frozen=True, kw_only=True):
    """Keeps dialogue until the consolidator reads it."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.BankPending"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "scope", "scope_id", "payload", "payload_blob", "payload_bytes", "origin", "source",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"payload": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    payload_bytes: int
    """Bytes of the payload in plaintext."""
    origin: str
    """agent_explicit, operator or compaction; the server decides it."""
    payload: str = ''
    """JSON text: {messages: [{role, content}]} or {content}; user content. Empty when it is in the blob store."""
    payload_blob: BlobRef | None = None
    """The payload, encrypted as in the field, when it is too long for it."""
    source: MemorySource | None = None
    """Who keeps it, from which run."""


class DropTarget(Record, frozen=True, kw_only=True):
    """Removes all pending entries of a target, and forgets that chats have settled: its user is erased."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.DropTarget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""


class LeaseTarget(Record, frozen=True, kw_only=True):
    """Takes the lease of a target, or extends it: one run at a time consolidates a scope."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.LeaseTarget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that wants the lease."""
    lease_ms: int = 60000
    """Milliseconds it is held, 1 to 3,600,000."""


class NoteSettledChat(Record, frozen=True, kw_only=True):
    """Says that a chat of the target has settled, which asks for a pass."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.NoteSettledChat"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""


class ReleaseTarget(Record, frozen=True, kw_only=True):
    """Gives the lease of a target back."""

    SCHEMA: ClassVar[str] = "loom.consolidation.commands.ReleaseTarget"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    owner: str
    """Run that holds the lease."""
    has_more: bool = False
    """Whether work is left, which asks for another pass."""


RECORDS = (
    AckPending,
    AdvanceTarget,
    BankPending,
    DropTarget,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
Command = AckPending | AdvanceTarget | BankPending | DropTarget | LeaseTarget | NoteSettledChat | ReleaseTarget
