"""What a restored state file gives back to a scope that is here: the keys that it lacks, as they were in the file.

Before: services/application/transfer/entity_restore.py. After: decide.py.
"""

from loomlog.schemas.generated.memory_commands import SetEntry
from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import MemorySource
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import FROM_OUTBOX, Refill
from loomlog.services.families.memory.state import MemoryEvent

RESTORED = MemorySource(origin="operator")


def refill(commands: Refill, event: MemoryEvent, now_ms: int) -> None:
    """Keep the command that sets each key which the file has at its end, unless it has expired."""
    match event:
        case EntrySet():
            commands.pop(event.key, None)
            if not 0 < event.expires_at_ms <= now_ms:
                commands[event.key] = _set(event, now_ms)
        case EntryDeleted() | EntrySuperseded():
            commands.pop(event.key, None)
        case EntriesExpired() | ScopeDropped():
            for key in event.keys:
                commands.pop(key, None)


def _set(event: EntrySet, now_ms: int) -> SetEntry:
    return copy_as(
        SetEntry,
        event,
        envelope=FROM_OUTBOX,  # the restore replaces it
        ttl_ms=event.expires_at_ms - now_ms if event.expires_at_ms else 0,
        if_revision=0,
        op="restore",
        dropped=0,
        source=RESTORED,
    )
