"""Records of the namespace loom.memory.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

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


class EntrySet(Record, frozen=True, kw_only=True):
    """A key of a memory scope was set."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntrySet"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "key", "value", "value_bytes", "revision", "previous_revision", "created_at_s",
        "expires_at_ms", "op", "dropped", "embed", "embed_text", "provenance", "source", "usage_bytes", "usage_keys",
        "quota_bytes",
    )
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


class EntrySuperseded(Record, frozen=True, kw_only=True):
    """A key of a memory scope was archived."""

    SCHEMA: ClassVar[str] = "loom.memory.events.EntrySuperseded"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "key", "revision", "previous_revision", "by_key", "reason", "source",
    )
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


class ScopeDropped(Record, frozen=True, kw_only=True):
    """Keys of a memory scope were deleted with it."""

    SCHEMA: ClassVar[str] = "loom.memory.events.ScopeDropped"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "keys", "more", "revision", "dropped_keys", "dropped_bytes", "reason", "source",
    )

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


RECORDS = (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
Event = EntriesExpired | EntryDeleted | EntrySet | EntrySuperseded | ScopeDropped
