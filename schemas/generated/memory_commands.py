"""Records of the namespace loom.memory.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope, MemorySource, Provenance
from loomlog.schemas.records import Record


class DeleteEntry(Record, frozen=True, kw_only=True):
    """Deletes a key of a memory scope."""

    SCHEMA: ClassVar[str] = "loom.memory.commands.DeleteEntry"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key."""
    if_revision: int = -1
    """Revision that the key must have; -1: any."""
    source: MemorySource | None = None
    """Who changes it; null for a service that appends records: then it is the sender."""


class DropScope(Record, frozen=True, kw_only=True):
    """Deletes all keys of a memory scope."""

    SCHEMA: ClassVar[str] = "loom.memory.commands.DropScope"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    reason: str = ''
    """Why."""
    source: MemorySource | None = None
    """Who changes it; null for a service that appends records: then it is the sender."""


class SetEntry(Record, frozen=True, kw_only=True):
    """Sets a key of a memory scope."""

    SCHEMA: ClassVar[str] = "loom.memory.commands.SetEntry"
    CONTENT: ClassVar[Mapping[str, str]] = {"value": "text", "embed_text": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key, at most 512 characters that can be printed."""
    value: str
    """JSON text of the value; user content."""
    value_bytes: int = 0
    """Bytes of the value in plaintext, when `value` is encrypted; 0: those of `value`."""
    ttl_ms: int = 0
    """Milliseconds until it expires; 0: as before."""
    if_revision: int = -1
    """Revision that the key must have, 0: none; -1: any."""
    quota_bytes: int = 0
    """Most bytes of the scope; 0: the default, -1: no bound."""
    op: str = 'set'
    """Operation of which it is the outcome: set, incr, merge, append_dedupe, bounded_list, add, restore."""
    dropped: int = 0
    """For bounded_list: items that were dropped."""
    embed: bool = False
    """Whether it is to be found by meaning."""
    embed_text: str = ''
    """Text to embed instead of the value; user content."""
    provenance: Provenance | None = None
    """What it is and where it was learnt; null for a note."""
    source: MemorySource | None = None
    """Who changes it; null for a service that appends records: then it is the sender."""


class SupersedeEntry(Record, frozen=True, kw_only=True):
    """Archives a key: it is kept, and no longer shown."""

    SCHEMA: ClassVar[str] = "loom.memory.commands.SupersedeEntry"
    CONTENT: ClassVar[Mapping[str, str]] = {"reason": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    """Name of the agent, id of the user; empty for the tenant."""
    key: str
    """Key."""
    by_key: str = ''
    """Key that takes its place; empty: none."""
    reason: str = ''
    """Why, for people; user content."""
    source: MemorySource | None = None
    """Who changes it; null for a service that appends records: then it is the sender."""


RECORDS = (
    DeleteEntry,
    DropScope,
    SetEntry,
    SupersedeEntry,
)
Command = DeleteEntry | DropScope | SetEntry | SupersedeEntry
