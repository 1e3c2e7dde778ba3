"""Alignment of the records found with the signed fingerprints.

As long as they agree this is one comparison per record. Where they do not, records are held back until both sides agree
again; everything in between was changed, lost or added. Offsets are not compared, because in a copy with a missing
record all later offsets differ although those records are as signed. Offsets only decide, within such a range, which
record replaced which.

    SIGNED      as signed       CHANGED   another record in its place
    UNSIGNED    not signed      LOST      signed and missing          ADDED   present and not signed, among signed ones

Pure, a value driven by its caller: `expect` for signed records, `add_record` for found records, `end`. Before:
checkpoint_chain.py, hashes.py. After: verify.py.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from loomlog.services.core.audit.hashes import FINGERPRINT_BYTES, HashedRecord

WINDOWS = (64, 1_024, 20_000)
"""Records held back while searching for the point where both sides agree again; about 15 MB of records.

The small windows are for one changed record, the last for a range of two whole checkpoints. When a longer range is
missing, the offsets show it. In a copy with new offsets they do not: then the records after such a range are reported
as changed, too.
"""


class RecordMatch(Enum):
    SIGNED = auto()
    UNSIGNED = auto()
    CHANGED = auto()
    LOST = auto()
    ADDED = auto()


class AlignedPair(NamedTuple):
    """A settled pair. `offset` is the signed one; for an unsigned record, its offset without earlier additions and
    losses.
    """

    match: RecordMatch
    offset: int
    fingerprint: bytes
    actual: HashedRecord | None


class Expected(NamedTuple):
    """A signed record; an empty fingerprint is an unsigned range up to the next expected offset."""

    offset: int
    fingerprint: bytes


class Aligner:
    """The comparison for one partition."""

    def __init__(self) -> None:
        self._expected: deque[Expected] = deque()
        self._held: deque[HashedRecord] = deque()
        self._level = 0
        self._delta = 0
        """Found offset minus signed offset of the last record on which both sides agreed."""
        self._closed = False

    @property
    def wants_record(self) -> bool:
        """Whether `expect` or `close` has to be called before the next `add_record` or `end`."""
        if self._closed:
            return False
        least = 1
        if self._held:
            least = WINDOWS[self._level]
        elif self._expected and not self._expected[0].fingerprint:
            least = 2  # an unsigned range ends where the next expected record begins
        return len(self._expected) < least

    @property
    def next_expected(self) -> int:
        """Offset of the next signed record, -1 for none."""
        return self._expected[0].offset if self._expected else -1

    def expect(self, expected: Sequence[Expected]) -> None:
        self._expected.extend(expected)

    def close(self) -> None:
        """Declare that there are no more signed records."""
        self._closed = True

    def add_record(self, hashed: HashedRecord) -> list[AlignedPair]:
        """Return the pairs settled by the next record: usually that one, none while records are held back."""
        if not self._held and (pair := self._match_directly(hashed)):
            return [pair]
        self._held.append(hashed)
        return self._resolve(final=False) if len(self._held) >= WINDOWS[self._level] else []

    def end(self) -> list[AlignedPair]:
        """Return the remaining pairs after the last record, as far as signed records are known.

        While `is_settled` is false afterwards and `wants_record` is true, more signed records are needed and `end` has
        to be called again.
        """
        self._level = len(WINDOWS) - 1
        if self._held and self.wants_record:
            return []
        pairs = self._resolve(final=True)
        if self._held:
            return pairs
        pairs += [AlignedPair(RecordMatch.LOST, e.offset, e.fingerprint, None) for e in self._expected if e.fingerprint]
        self._expected.clear()
        return pairs

    @property
    def is_settled(self) -> bool:
        """Whether no record is held back."""
        return not self._held

    def _match_directly(self, hashed: HashedRecord) -> AlignedPair | None:
        """Return the pair of the next record if no search is needed."""
        expected = self._expected
        while expected:
            offset, fingerprint = expected[0]
            if fingerprint == hashed.record_hash[:FINGERPRINT_BYTES]:
                expected.popleft()
                self._delta = hashed.record.offset - offset
                return AlignedPair(RecordMatch.SIGNED, offset, fingerprint, hashed)
            if fingerprint:
                return None
            after = expected[1] if len(expected) > 1 else None
            if after is None and not self._closed:
                return None
            at = hashed.record.offset - self._delta
            if after is None or (after.fingerprint != hashed.fingerprint and at < after.offset):
                return AlignedPair(RecordMatch.UNSIGNED, at, b"", hashed)
            expected.popleft()
        if not self._closed:
            return None
        return AlignedPair(RecordMatch.UNSIGNED, hashed.record.offset - self._delta, b"", hashed)

    def _resolve(self, *, final: bool) -> list[AlignedPair]:
        pairs: list[AlignedPair] = []
        while self._held:
            if pair := self._match_directly(self._held[0]):
                self._held.popleft()
                pairs.append(pair)
                continue
            if pairs and not final:
                self._level = 0  # both sides agreed again: a new search starts with the smallest window
            if not self._closed and len(self._expected) < 2:
                return pairs  # the signed records are needed first
            window = WINDOWS[-1] if final else WINDOWS[self._level]
            if not final and (len(self._held) < window or (len(self._expected) < window and not self._closed)):
                return pairs
            ahead = list(islice(self._expected, window))
            held = list(islice(self._held, window))
            meeting = _meeting(ahead, held)
            if meeting is None and not final and self._level < len(WINDOWS) - 1:
                self._level += 1
                return pairs
            lost, added = meeting or self._mark_apart(ahead, held)
            pairs += self._between(ahead[:lost], held[:added], met=meeting is not None)
        self._level = 0
        return pairs

    def _mark_apart(self, expected: Sequence[Expected], held: Sequence[HashedRecord]) -> tuple[int, int]:
        """Return how many to skip on each side without a match: one side only if its offsets come
        before the other's.
        """
        first, last = (held[place].record.offset - self._delta for place in (0, -1))
        if expected and first > expected[-1].offset:
            return len(expected), 0
        if expected and last < expected[0].offset:
            return 0, len(held)
        return len(expected), len(held)

    def _between(self, expected: Sequence[Expected], held: Sequence[HashedRecord], *, met: bool) -> list[AlignedPair]:
        """Return the pairs of a range without agreement, and remove both sides from the queues."""
        for _ in expected:
            self._expected.popleft()  # before `next_expected` is used below
        ends_here = self._closed and not self._expected and not met
        places = {place.offset: place for place in expected if place.fingerprint}
        ends = [*(place.offset for place in expected[1:]), self.next_expected]
        unvouched = [(e.offset, end) for e, end in zip(expected, ends, strict=False) if not e.fingerprint]
        pairs: list[AlignedPair] = []
        for hashed in held:
            self._held.popleft()
            at = hashed.record.offset - self._delta
            place = places.pop(at, None)
            is_unvouched = any(start <= at < end or (start <= at and end < 0) for start, end in unvouched)
            if place is not None:
                pairs.append(AlignedPair(RecordMatch.CHANGED, at, place.fingerprint, hashed))
            elif is_unvouched or (ends_here and (not expected or at > expected[-1].offset)):
                pairs.append(AlignedPair(RecordMatch.UNSIGNED, at, b"", hashed))
            else:
                pairs.append(AlignedPair(RecordMatch.ADDED, at, b"", hashed))
        pairs += [AlignedPair(RecordMatch.LOST, place.offset, place.fingerprint, None) for place in places.values()]
        pairs.sort(key=lambda pair: pair.offset)
        return pairs


def _meeting(expected: Sequence[Expected], held: Sequence[HashedRecord]) -> tuple[int, int] | None:
    """Find the nearest point where both sides agree again; return how many to skip on each side."""
    places: dict[bytes, int] = {}
    for index, hashed in enumerate(held):
        places.setdefault(hashed.fingerprint, index)
    best: tuple[int, int] | None = None
    for index, place in enumerate(expected):
        if best is not None and index >= sum(best):
            break
        other = places.get(place.fingerprint)
        if other is not None and (best is None or index + other < sum(best)):
            best = (index, other)
    return best
