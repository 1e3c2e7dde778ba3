"""Leases, waits and watches of a queue, by the id of the command that made them.

They are in buckets, so that a change copies a small map instead of 2,000 entries. In the bytes of a state each is an
array that begins with a letter.

Before: state.py. After: the schemas.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from loomlog.schemas.generated.values import CallRef
from loomlog.schemas.records import Value, copy_as

BUCKETS = 64
Ranges = tuple[tuple[int, int], ...]
"""First and last positions, ascending and apart."""
LEASE_BYTES, WAIT_BYTES, WATCH_BYTES = 64, 80, 68
"""Bytes of an entry without id, run and reader, with numbers of ten digits."""
POSITION_BYTES = 20
"""Bytes of a position of ten digits, and of how often it was given."""


class Lease(Value, frozen=True, array_like=True, tag="l"):
    """Messages that a reader took."""

    until_ms: int
    """When its run is asked again, or of a request, when the messages are visible again."""
    positions: Ranges
    replayed: Ranges = ()
    """Those that the reader had taken before: they do not return."""
    reader: str = ""
    run_id: str = ""
    """Empty: a request."""
    turn: int = 0
    index: int = 0
    attempts: tuple[int, ...] = ()
    """How often the reader was given each message, this time included; empty: all for the first time."""

    def deliveries(self) -> dict[int, int]:
        """Return how often the reader was given each message, by position."""
        positions = positions_of(self.positions)
        return dict(zip(positions, self.attempts, strict=True)) if self.attempts else dict.fromkeys(positions, 1)


class Wait(Value, frozen=True, array_like=True, tag="r"):
    """A call that waits for messages."""

    until_ms: int
    number: int
    """Order of arrival."""
    max_messages: int
    reader: str
    run_id: str
    turn: int
    index: int


class Watch(Value, frozen=True, array_like=True, tag="w"):
    """A call that awaits messages, which stay in the queue."""

    until_ms: int
    number: int
    """Order of arrival."""
    after_position: int
    run_id: str
    turn: int
    index: int


Entry = Lease | Wait | Watch


class Bucket(Value, frozen=True, array_like=True, tag=False):
    """Some of the entries."""

    due_ms: int
    """When the first of them is due."""
    entries: Mapping[str, Entry]


Buckets = Mapping[str, Bucket]


def place_of(entry_id: str) -> int:
    """Return the number of the bucket of an id."""
    return zlib.crc32(entry_id.encode()) % BUCKETS


def find(buckets: Buckets, entry_id: str) -> Entry | None:
    """Return the entry with an id."""
    bucket = buckets.get(str(place_of(entry_id)))
    return None if bucket is None else bucket.entries.get(entry_id)


def find_wait(buckets: Buckets, place: int, number: int) -> tuple[str, Wait]:
    """Return the wait with a number, of that bucket, and its id."""
    entries = buckets[str(place)].entries.items()
    return next((name, one) for name, one in entries if isinstance(one, Wait) and one.number == number)


def with_entry(buckets: Buckets, entry_id: str, entry: Entry) -> Buckets:
    """Return the buckets with an entry, in place of one with the same id."""
    place = str(place_of(entry_id))
    bucket = buckets.get(place)
    if bucket is None:
        return {**buckets, place: Bucket(entry.until_ms, {entry_id: entry})}
    entries = {**bucket.entries, entry_id: entry}
    due_ms = _due_ms(entries) if entry_id in bucket.entries else min(bucket.due_ms, entry.until_ms)
    return {**buckets, place: Bucket(due_ms, entries)}


def without_entry(buckets: Buckets, entry_id: str) -> Buckets:
    """Return the buckets without an entry that they have."""
    place = str(place_of(entry_id))
    bucket = buckets[place]
    entries = dict(bucket.entries)
    entry = entries.pop(entry_id)
    if entries:
        due_ms = _due_ms(entries) if entry.until_ms == bucket.due_ms else bucket.due_ms
        return {**buckets, place: Bucket(due_ms, entries)}
    rest = dict(buckets)
    del rest[place]
    return rest


def _due_ms(entries: Mapping[str, Entry]) -> int:
    return min(entry.until_ms for entry in entries.values())


def next_due_ms(buckets: Buckets) -> int:
    """Return when the first entry is due; 0: there is none."""
    return min((bucket.due_ms for bucket in buckets.values()), default=0)


def due_ids(buckets: Buckets, at_ms: int) -> Sequence[str]:
    """Return the ids of the entries whose time has come, in that order."""
    due = [
        (entry.until_ms, name)
        for bucket in buckets.values()
        if bucket.due_ms <= at_ms
        for name, entry in bucket.entries.items()
        if entry.until_ms <= at_ms
    ]
    return [name for _, name in sorted(due)]


def watches(buckets: Buckets) -> Sequence[tuple[str, Watch]]:
    """Return all watches in order of arrival."""
    some = [
        (name, one) for bucket in buckets.values() for name, one in bucket.entries.items() if isinstance(one, Watch)
    ]
    return sorted(some, key=lambda pair: pair[1].number)


def leased_positions(buckets: Buckets) -> frozenset[int]:
    """Return the positions of all leases."""
    leases = (one for bucket in buckets.values() for one in bucket.entries.values() if isinstance(one, Lease))
    return frozenset(position for lease in leases for position in positions_of(lease.positions))


def entry_bytes(entry_id: str, entry: Entry) -> int:
    """Return the bytes of an entry in the state, at most; of a lease, also when all of its messages have returned."""
    size = len(entry_id) + len(entry.run_id)
    match entry:
        case Lease(positions=positions, replayed=replayed, reader=reader):
            ranges = len(positions) + len(replayed)
            return LEASE_BYTES + size + len(reader) + POSITION_BYTES * (ranges + count_of(positions))
        case Wait(reader=reader):
            return WAIT_BYTES + size + 2 * len(reader)
        case Watch():
            return WATCH_BYTES + size


def call_of(entry: Entry) -> CallRef | None:
    """Return the call of an entry; None for a request."""
    return copy_as(CallRef, entry) if entry.run_id else None


def ranges_of(positions: Sequence[int]) -> Ranges:
    """Return ascending positions as ranges."""
    if not positions:
        return ()
    breaks = [(one, other) for one, other in pairwise(positions) if other != one + 1]
    firsts = (positions[0], *(other for _, other in breaks))
    lasts = (*(one for one, _ in breaks), positions[-1])
    return tuple(zip(firsts, lasts, strict=True))


def positions_of(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the positions of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def count_of(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many positions ranges have."""
    return sum(last - first + 1 for first, last in ranges)
