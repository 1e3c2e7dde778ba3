"""The state of a queue: counters, cursors, and what is delayed, leased or waits. Messages are in events and rows.

Every message has a number, in order of publishing, and once it is visible a position, in order of visibility; both are
dense and begin at 1. Folding an event costs the same however many messages, readers and entries there are, up to the
copy of a bucket of 64 or a chunk.

Before: decide.py has an event, or a row a state. After: decide.py, store.py.
"""

import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple, assert_never

from loomlog.schemas.generated.channel_events import (
    CursorMoved,
    LeaseReminded,
    LeaseSettled,
    MessagePublished,
    MessagesDropped,
    MessagesLeased,
    MessagesSurfaced,
    QueuePurged,
    QueueWatched,
    ReaderWaiting,
    WaitExpired,
    WatchReported,
)
from loomlog.schemas.generated.values import CallRef
from loomlog.schemas.records import Value, replace
from loomlog.services.families.channel import entries as entry_map
from loomlog.services.families.channel import limits, spans
from loomlog.services.families.channel.caller import Queue, queue_of_aggregate
from loomlog.services.families.channel.cursor import NS_PER_MS, parse_cursor
from loomlog.services.families.channel.entries import POSITION_BYTES, Bucket, Entry, Lease, Wait, Watch, entry_bytes
from loomlog.services.families.channel.sorted_chunks import Chunks, insert, remove, without_first
from loomlog.services.families.channel.spans import Spans

VERSION = 2
"""Version of the fold."""
READER_BUCKETS = 64
DELAYED_BYTES = 40
READER_BYTES = 40
"""Bytes of a reader without its name."""

ChannelEvent = (
    MessagePublished
    | MessagesSurfaced
    | MessagesDropped
    | MessagesLeased
    | ReaderWaiting
    | QueueWatched
    | WatchReported
    | WaitExpired
    | LeaseReminded
    | LeaseSettled
    | CursorMoved
    | QueuePurged
)


class Delayed(NamedTuple):
    """A message that is not yet visible."""

    visible_ms: int
    number: int
    expires_at_ms: int
    """UTC milliseconds; 0: never."""


class Reader(NamedTuple):
    """A cursor, and who waits behind it."""

    position: int = 0
    """Messages up to this one were leased, or passed by."""
    returned: tuple[int, ...] = ()
    """Positions up to it that are to be read again, ascending."""
    waiting: Chunks[tuple[int, int]] = ()
    """Number and bucket of the calls that wait, in order of arrival."""
    attempts: tuple[int, ...] = ()
    """How often the reader was given each of `returned`; empty: each once."""

    @property
    def committed(self) -> int:
        """Position up to which nothing is to be read any more."""
        return self.returned[0] - 1 if self.returned else self.position

    def deliveries(self) -> dict[int, int]:
        """Return how often the reader was given each of `returned`."""
        return dict(zip(self.returned, self.attempts or repeat(1), strict=False))

    def with_returned(self, deliveries: Mapping[int, int]) -> "Reader":
        """Return the reader with these positions in place of `returned`, and how often it was given each."""
        returned = tuple(sorted(deliveries))
        attempts = tuple(deliveries[one] for one in returned)
        return self._replace(returned=returned, attempts=attempts if any(one != 1 for one in attempts) else ())


NEW_READER = Reader()


class QueueState(Value, frozen=True, kw_only=True, omit_defaults=True):
    """State of a queue."""

    key: str = ""
    """`<tenant>/<name of the aggregate>`."""
    last_number: int = 0
    last_published_ns: int = 0
    last_position: int = 0
    last_visible_ns: int = 0
    first_position: int = 1
    """Messages before it were dropped, purged or have expired."""
    spans: Spans = ()
    delayed: Chunks[Delayed] = ()
    delayed_count: int = 0
    readers: Mapping[str, Mapping[str, Reader]] = {}
    """By bucket and name; the shared one has the name \"\"."""
    named_readers: int = 0
    waiting_readers: Chunks[str] = ()
    """Names of those that calls wait for."""
    buckets: Mapping[str, Bucket] = {}
    """Leases, waits and watches."""
    leased: int = 0
    """Messages of all leases."""
    waits: int = 0
    watches: int = 0
    arrivals: int = 0
    """Waits and watches that there have been."""
    entries_bytes: int = 0
    """Bytes of delayed messages, readers, leases, waits and watches in the state, at most."""

    @property
    def queue(self) -> Queue:
        """The queue that it is the state of."""
        return queue_of_key(self.key)

    def reader(self, name: str) -> Reader:
        """Return a reader; one that has read nothing begins at the oldest message."""
        readers = self.readers.get(_reader_bucket(name))
        return NEW_READER if readers is None else readers.get(name, NEW_READER)

    def has_reader(self, name: str) -> bool:
        """Return whether a reader has been here."""
        return name in self.readers.get(_reader_bucket(name), ())

    def entry(self, entry_id: str) -> Entry | None:
        """Return the lease, wait or watch with an id."""
        return entry_map.find(self.buckets, entry_id)

    def oldest_position(self, at_ms: int) -> int:
        """Return the position of the oldest message that may be left, or of the next one."""
        if not self.spans or self.spans[0].expires_at_ms > at_ms:
            return self.first_position
        left = spans.without_expired(self.spans, at_ms)
        dropped = self.spans[len(self.spans) - len(left) - 1]
        return max(self.first_position, dropped.last_position + 1)

    def message_count(self, at_ms: int) -> int:
        """Return how many visible messages are kept; some of the oldest may have expired."""
        return self.last_position - self.oldest_position(at_ms) + 1

    def oldest_visible_ns(self, at_ms: int) -> int:
        """Return when the oldest message became visible, or one shortly before it; 0: there is none."""
        left = spans.without_expired(self.spans, at_ms)
        return left[0].first_visible_ns if left else 0

    def newest_visible_ns(self, at_ms: int) -> int:
        """Return when the newest message became visible; 0: there is none."""
        return self.last_visible_ns if self.message_count(at_ms) else 0

    def next_positions(self, reader: Reader, limit: int, at_ms: int) -> Sequence[int]:
        """Return what a reader reads next, ascending: what has returned, then what is behind its cursor."""
        oldest = self.oldest_position(at_ms)
        positions: Sequence[int] = ()
        if reader.returned:
            start = bisect_left(reader.returned, oldest)
            positions = reader.returned[start : start + limit]
        first = max(reader.position + 1, oldest)
        last = min(first + limit - len(positions) - 1, self.last_position)
        return (*positions, *range(first, last + 1)) if positions else range(first, last + 1)

    def attempts(self, name: str, positions: Sequence[int]) -> tuple[int, ...]:
        """Return how often a reader has been given each position once it has these; empty: all for the first time.

        What it reads again from a cursor, after it has taken it, counts as the first time.
        """
        deliveries = self.reader(name).deliveries()
        if not deliveries:
            return ()
        attempts = tuple(min(deliveries.get(one, 0) + 1, limits.ATTEMPT_MAX) for one in positions)
        return attempts if any(one > 1 for one in attempts) else ()

    def positions_after(self, position: int, limit: int, at_ms: int) -> Sequence[int]:
        """Return the positions behind a place, read before or not."""
        first = max(position + 1, self.oldest_position(at_ms))
        return range(first, min(first + limit - 1, self.last_position) + 1)

    def positions_before(self, position: int, limit: int, at_ms: int) -> Sequence[int]:
        """Return the positions before a place, read before or not, the newest first."""
        last = min(position - 1, self.last_position)
        return range(last, max(last - limit, self.oldest_position(at_ms) - 1), -1)

    def position_of_cursor(self, text: str) -> int:
        """Return the position of a cursor; 0: before the oldest message. Raises ValueError."""
        cursor = parse_cursor(text, self.key)
        if not cursor.visible_ns:
            return 0
        position = 0
        if cursor.visible_ns <= self.last_visible_ns:
            position = spans.position_of(self.spans, self.first_position, self.last_visible_ns, cursor.visible_ns)
        if position < 1:
            raise ValueError(f"{text!r} is a cursor of no message of this queue")
        return position


@lru_cache(4_096)
def queue_of_key(key: str) -> Queue:
    """Return the queue of a key `<tenant>/<name of the aggregate>`."""
    tenant, _, name = key.partition("/")
    return queue_of_aggregate(tenant, name)


def initial(aggregate: str) -> QueueState:
    """Return the state of a queue without messages, by the full id of its aggregate."""
    return QueueState(key=aggregate.partition(":")[2])


def next_timer_ms(state: QueueState) -> int:
    """Return when a message becomes visible, or an entry is due; 0: never."""
    due_ms = entry_map.next_due_ms(state.buckets) if state.buckets else 0
    if not state.delayed:
        return due_ms
    visible_ms = state.delayed[0][0].visible_ms
    return min(due_ms, visible_ms) if due_ms else visible_ms


def evolve(state: QueueState, event: ChannelEvent, at_ms: int) -> QueueState:
    """Return the queue after an event."""
    match event:
        case MessagePublished():
            return _published(state, event, at_ms)
        case MessagesLeased():
            return _leased(state, event)
        case LeaseSettled():
            return _settled(state, event)
        case ReaderWaiting():
            return _waiting(state, event)
        case MessagesSurfaced():
            return _surfaced(state, event, at_ms)
        case MessagesDropped(first_position=first_position):
            return replace(state, first_position=first_position, spans=spans.without_first(state.spans, first_position))
        case QueueWatched():
            return _watched(state, event, at_ms)
        case WatchReported(wait_id=wait_id, is_expired=is_expired):
            return _without_entry(state, wait_id) if is_expired else state
        case WaitExpired(wait_id=wait_id):
            return _without_entry(state, wait_id)
        case LeaseReminded():
            lease = state.entry(event.lease_id)
            if lease is None:
                return state
            later = replace(lease, until_ms=event.until_ms)
            return replace(state, buckets=entry_map.with_entry(state.buckets, event.lease_id, later))
        case CursorMoved(reader=name, position=position):
            reader = state.reader(name)
            left = {one: times for one, times in reader.deliveries().items() if one > position}
            moved = reader.with_returned(left)._replace(position=max(reader.position, position))
            return _with_reader(state, name, moved)
        case QueuePurged():
            return _purged(state, event)
        case _:
            assert_never(event)


def expiry_ms(expires_at_ms: int, visible_ms: int) -> int:
    """Return when a message is gone: at its expiry, or at the age that no message exceeds."""
    oldest_ms = visible_ms + limits.AGE_MS
    return min(expires_at_ms, oldest_ms) if expires_at_ms else oldest_ms


def _published(state: QueueState, event: MessagePublished, at_ms: int) -> QueueState:
    if not event.position:
        delayed = Delayed(event.visible_ns // NS_PER_MS, event.number, event.expires_at_ms)
        return replace(
            state,
            last_number=event.number,
            last_published_ns=event.published_ns,
            delayed=insert(state.delayed, delayed),
            delayed_count=state.delayed_count + 1,
            entries_bytes=state.entries_bytes + DELAYED_BYTES,
        )
    first_position = state.oldest_position(at_ms)
    kept = state.spans if first_position == state.first_position else spans.without_expired(state.spans, at_ms)
    gone_ms = expiry_ms(event.expires_at_ms, event.visible_ns // NS_PER_MS)
    return replace(
        state,
        last_number=event.number,
        last_published_ns=event.published_ns,
        last_position=event.position,
        last_visible_ns=event.visible_ns,
        first_position=first_position,
        spans=spans.with_message(kept, first_position, event.position, event.visible_ns, gone_ms),
    )


def _surfaced(state: QueueState, event: MessagesSurfaced, at_ms: int) -> QueueState:
    first_position = state.oldest_position(at_ms)
    kept = spans.without_expired(state.spans, at_ms)
    delayed = state.delayed
    for message in event.messages:
        one = delayed[0][0]
        delayed = without_first(delayed, 1)
        gone_ms = expiry_ms(one.expires_at_ms, message.visible_ns // NS_PER_MS)
        kept = spans.with_message(kept, first_position, message.position, message.visible_ns, gone_ms)
    last, count = event.messages[-1], len(event.messages)
    return replace(
        state,
        last_position=last.position,
        last_visible_ns=last.visible_ns,
        first_position=first_position,
        spans=kept,
        delayed=delayed,
        delayed_count=state.delayed_count - count,
        entries_bytes=state.entries_bytes - count * DELAYED_BYTES,
    )


def _leased(state: QueueState, event: MessagesLeased) -> QueueState:
    """A lease of what the reader has taken already, a replay, leaves its cursor where it is."""
    state = _without_entry(state, event.lease_id)
    reader, positions = state.reader(event.reader), event.positions
    replayed = tuple[int, ...]()
    if positions[0] <= reader.position:
        taken, deliveries = frozenset(positions), reader.deliveries()
        replayed = tuple(one for one in positions if one <= reader.position and one not in deliveries)
        first = state.first_position
        left = {one: times for one, times in deliveries.items() if one not in taken and one >= first}
        reader = reader.with_returned(left)
    state = _with_reader(state, event.reader, reader._replace(position=max(reader.position, positions[-1])))
    call = event.call or NO_CALL
    lease = Lease(
        until_ms=event.until_ms,
        positions=entry_map.ranges_of(positions),
        replayed=entry_map.ranges_of(replayed),
        reader=event.reader,
        run_id=call.run_id,
        turn=call.turn,
        index=call.index,
        attempts=event.attempts,
    )
    return _with_entry(replace(state, leased=state.leased + len(positions)), event.lease_id, lease)


NO_CALL = CallRef(run_id="", turn=0, index=0)


def _settled(state: QueueState, event: LeaseSettled) -> QueueState:
    lease = state.entry(event.lease_id)
    state = _without_entry(state, event.lease_id)
    if not event.returned:
        return state
    deliveries = lease.deliveries() if isinstance(lease, Lease) else {}
    # A reader that took some had no room for the others, and has not seen them.
    unseen = 1 if event.taken else 0
    reader = state.reader(event.reader)
    kept = {one: times for one, times in reader.deliveries().items() if one >= state.first_position}
    back = {one: deliveries.get(one, 1) - unseen for one in event.returned}
    return _with_reader(state, event.reader, reader.with_returned(kept | back))


def _waiting(state: QueueState, event: ReaderWaiting) -> QueueState:
    number, call = state.arrivals + 1, event.call
    wait = Wait(event.until_ms, number, event.max_messages, event.reader, call.run_id, call.turn, call.index)
    reader = state.reader(event.reader)
    waiting = insert(reader.waiting, (number, entry_map.place_of(event.wait_id)))
    if not reader.waiting:
        state = replace(state, waiting_readers=insert(state.waiting_readers, event.reader))
    state = _with_reader(state, event.reader, reader._replace(waiting=waiting))
    return _with_entry(replace(state, waits=state.waits + 1, arrivals=number), event.wait_id, wait)


def _watched(state: QueueState, event: QueueWatched, at_ms: int) -> QueueState:
    if event.until_ms <= at_ms:
        return state
    number, call = state.arrivals + 1, event.call
    watch = Watch(event.until_ms, number, event.after_position, call.run_id, call.turn, call.index)
    return _with_entry(replace(state, watches=state.watches + 1, arrivals=number), event.wait_id, watch)


def _purged(state: QueueState, event: QueuePurged) -> QueueState:
    """Cursors, waits and leases stay; a purge costs a look at each reader."""
    returned = sum(len(reader.returned) for some in state.readers.values() for reader in some.values())
    readers = state.readers
    if returned:
        readers = {
            bucket: {name: reader.with_returned({}) for name, reader in some.items()}
            for bucket, some in readers.items()
        }
    size = state.entries_bytes - state.delayed_count * DELAYED_BYTES - returned * POSITION_BYTES
    return replace(
        state,
        first_position=event.first_position,
        spans=(),
        delayed=(),
        delayed_count=0,
        readers=readers,
        entries_bytes=size,
    )


def _with_reader(state: QueueState, name: str, reader: Reader) -> QueueState:
    bucket = _reader_bucket(name)
    some = state.readers.get(bucket, {})
    old = some.get(name)
    size = (len(reader.returned) - (len(old.returned) if old is not None else 0)) * POSITION_BYTES
    if old is None:
        size += READER_BYTES + len(name)
    return replace(
        state,
        readers={**state.readers, bucket: {**some, name: reader}},
        named_readers=state.named_readers + (old is None and name != ""),
        entries_bytes=state.entries_bytes + size,
    )


def _with_entry(state: QueueState, entry_id: str, entry: Entry) -> QueueState:
    return replace(
        state,
        buckets=entry_map.with_entry(state.buckets, entry_id, entry),
        entries_bytes=state.entries_bytes + entry_bytes(entry_id, entry),
    )


def _without_entry(state: QueueState, entry_id: str) -> QueueState:
    """Return the queue without a lease, wait or watch; as it is when there is none."""
    entry = state.entry(entry_id)
    if entry is None:
        return state
    buckets = entry_map.without_entry(state.buckets, entry_id)
    size = state.entries_bytes - entry_bytes(entry_id, entry)
    match entry:
        case Lease(positions=positions):
            leased = state.leased - entry_map.count_of(positions)
            return replace(state, buckets=buckets, entries_bytes=size, leased=leased)
        case Watch():
            return replace(state, buckets=buckets, entries_bytes=size, watches=state.watches - 1)
        case Wait(number=number, reader=name):
            reader = state.reader(name)
            waiting = remove(reader.waiting, (number, entry_map.place_of(entry_id)))
            names = state.waiting_readers if waiting else remove(state.waiting_readers, name)
            state = replace(state, buckets=buckets, entries_bytes=size, waits=state.waits - 1, waiting_readers=names)
            return _with_reader(state, name, reader._replace(waiting=waiting))
        case _:
            assert_never(entry)


def _reader_bucket(name: str) -> str:
    return str(zlib.crc32(name.encode()) % READER_BUCKETS) if name else "0"
