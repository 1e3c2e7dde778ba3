"""The state of a memory scope: which keys it has, and how large and how old they are. Values are in events and rows.

Keys are in buckets, so that an event copies two small maps instead of up to 10,000 entries.

Before: decide.py has an event, or a row a state. After: decide.py.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, assert_never

from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.families.memory import limits

VERSION = 1
"""Version of the fold."""
BUCKETS = 128
MemoryEvent = EntrySet | EntryDeleted | EntrySuperseded | EntriesExpired | ScopeDropped


class Entry(NamedTuple):
    """A key."""

    revision: int
    """Number of the change that set it."""
    bytes: int
    """Size of its value in plaintext."""
    expires_at_ms: int
    """UTC milliseconds; 0: never."""
    created_at_s: int
    """When it was set first, UTC seconds."""


class MemoryScope(Value, frozen=True, kw_only=True):
    """The keys of a scope."""

    scope: str = ""
    """agent, user or tenant."""
    scope_id: str = ""
    revision: int = 0
    """Number of its changes."""
    bytes: int = 0
    """Size of all values in plaintext."""
    keys: int = 0
    name_bytes: int = 0
    """Bytes of the names of the keys, with ENTRY_BYTES for each."""
    next_expiry_ms: int = 0
    """No key expires before; 0: none expires."""
    quota_bytes: int = 0
    """Most bytes, as the last write named it; 0: the default."""
    buckets: Mapping[str, Mapping[str, Entry]] = {}

    def find(self, key: str, at_ms: int) -> Entry | None:
        """Return the entry of a key that has not expired."""
        entry = self.stored(key)
        return None if entry is None or is_expired(entry, at_ms) else entry

    def stored(self, key: str) -> Entry | None:
        """Return the entry of a key, expired or not."""
        return self.buckets.get(_bucket(key), {}).get(key)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Return all keys in no order."""
        for bucket in self.buckets.values():
            yield from bucket.items()

    def expired(self, at_ms: int) -> list[str]:
        """Return the keys that have expired, in the order of their names."""
        if not self.next_expiry_ms or self.next_expiry_ms > at_ms:
            return []
        return sorted(key for key, entry in self.entries() if is_expired(entry, at_ms))


def initial(aggregate: str) -> MemoryScope:
    """Return a scope without keys, by the full id of its aggregate: `memory:<tenant>/<scope>/<scope id>`."""
    scope, _, scope_id = aggregate.partition("/")[2].partition("/")
    return MemoryScope(scope=scope, scope_id=scope_id)


def is_expired(entry: Entry, at_ms: int) -> bool:
    """Return whether the time of an entry is over."""
    return 0 < entry.expires_at_ms <= at_ms


def name_bytes(key: str) -> int:
    """Return what the name of a key takes of the state."""
    return len(key.encode()) + limits.ENTRY_BYTES


def evolve(scope: MemoryScope, event: MemoryEvent, at_ms: int) -> MemoryScope:
    """Return the scope after an event."""
    match event:
        case EntrySet():
            return replace(_with(scope, event), revision=event.revision, quota_bytes=event.quota_bytes)
        case EntryDeleted() | EntrySuperseded():
            return replace(without(scope, [event.key]), revision=event.revision)
        case EntriesExpired():
            after = without(scope, event.keys)
            times = (entry.expires_at_ms for _, entry in after.entries() if entry.expires_at_ms)
            return replace(after, revision=event.revision, next_expiry_ms=min(times, default=0))
        case ScopeDropped():
            return replace(without(scope, event.keys), revision=event.revision)
        case _:
            assert_never(event)


def without(scope: MemoryScope, keys: Iterable[str]) -> MemoryScope:
    """Return the scope without these keys."""
    buckets = dict(scope.buckets)
    count, size, names = scope.keys, scope.bytes, scope.name_bytes
    for key in keys:
        place = _bucket(key)
        bucket = buckets.get(place, {})
        entry = bucket.get(key)
        if entry is None:
            continue
        rest = {name: one for name, one in bucket.items() if name != key}
        if rest:
            buckets[place] = rest
        else:
            del buckets[place]
        count, size, names = count - 1, size - entry.bytes, names - name_bytes(key)
    return replace(scope, buckets=buckets, keys=count, bytes=size, name_bytes=names)


def _with(scope: MemoryScope, event: EntrySet) -> MemoryScope:
    place, key = _bucket(event.key), event.key
    bucket = scope.buckets.get(place, {})
    old = bucket.get(key)
    entry = Entry(event.revision, event.value_bytes, event.expires_at_ms, event.created_at_s)
    soonest = [time for time in (scope.next_expiry_ms, event.expires_at_ms) if time]
    return replace(
        scope,
        buckets={**scope.buckets, place: {**bucket, key: entry}},
        keys=scope.keys + (old is None),
        bytes=scope.bytes + event.value_bytes - (old.bytes if old is not None else 0),
        name_bytes=scope.name_bytes + (name_bytes(key) if old is None else 0),
        next_expiry_ms=min(soonest, default=0),
    )


def _bucket(key: str) -> str:
    return str(zlib.crc32(key.encode()) % BUCKETS)
