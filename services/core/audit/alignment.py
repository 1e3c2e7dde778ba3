"""Lays the records that are found along the fingerprints that were signed, and says which belongs to which.

As long as they agree this is one comparison a record. Where they do not, records are held back until both sides go on
equally again; what lies between is what was changed, lost or added. Offsets are not what is compared, because a copy
in which a record is missing has other offsets from there on and everything after it is still as it was signed. They
decide only inside of such a stretch which record took whose place.

    SIGNED      as signed            CHANGED   another record in its place
    UNSIGNED    nobody signed it     LOST      signed and not there      ADDED   there and not signed, among signed ones

Pure, and a value that is driven: `expect` what was signed, `offer` what is found, `end`.
Before: checkpoint_chain.py, hashes.py. After: verify.py.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from loomlog.services.core.audit.hashes import FINGERPRINT_BYTES, HashedRecord

WINDOWS = (64, 1_024, 20_000)
"""Records held back while both sides are searched for where they go on equally: a few when one record was touched, the
last for a stretch of two whole checkpoints; about 15 MB of records. When a longer stretch is missing, the offsets say
so. In a copy that was numbered anew they do not: then what follows such a stretch is called changed as well."""


class RecordMatch(Enum):
    SIGNED = auto()
    UNSIGNED = auto()
    CHANGED = auto()
    LOST = auto()
    ADDED = auto()


class AlignedPair(NamedTuple):
    """`offset` is the signed one; where nothing was signed, what it would be but for what was added or lost before."""

    match: RecordMatch
    offset: int
    fingerprint: bytes
    found: HashedRecord | None


class Expected(NamedTuple):
    """A signed record; with an empty fingerprint a stretch nobody vouches for, up to the next expected offset."""

    offset: int
    fingerprint: bytes


class Aligner:
    """The comparison for one partition."""

    def __init__(self) -> None:
        self._expected: deque[Expected] = deque()
        self._held: deque[HashedRecord] = deque()
        self._level = 0
        self._delta = 0
        """Found offset minus signed offset of the last record both sides agreed on."""
        self._closed = False

    @property
    def wants_record(self) -> bool:
        """Whether `expect` or `close` has to come before the next `offer` or `end`."""
        if self._closed:
            return False
        least = 1
        if self._held:
            least = WINDOWS[self._level]
        elif self._expected and not self._expected[0].fingerprint:
            least = 2  # a stretch nobody vouches for ends where the next one begins
        return len(self._expected) < least

    @property
    def next_expected(self) -> int:
        """Offset of the next signed record, -1 for none."""
        return self._expected[0].offset if self._expected else -1

    def expect(self, expected: Sequence[Expected]) -> None:
        self._expected.extend(expected)

    def close(self) -> None:
        """Nothing more was signed."""
        self._closed = True

    def add_record(self, found: HashedRecord) -> list[AlignedPair]:
        """What is settled by the next record: usually that one, nothing while records are held back."""
        if not self._held and (pair := self._match_directly(found)):
            return [pair]
        self._held.append(found)
        return self._resolve(final=False) if len(self._held) >= WINDOWS[self._level] else []

    def end(self) -> list[AlignedPair]:
        """The rest, when there are no more records; of what was signed, as far as it was told.

        While it is not `is_settled` afterwards, it `wants` more of what was signed and has to be called again.
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
        """Nothing is held back."""
        return not self._held

    def _match_directly(self, found: HashedRecord) -> AlignedPair | None:
        """The pair of the next record if no search is needed."""
        expected = self._expected
        while expected:
            offset, fingerprint = expected[0]
            if fingerprint == found.record_hash[:FINGERPRINT_BYTES]:
                expected.popleft()
                self._delta = found.record.offset - offset
                return AlignedPair(RecordMatch.SIGNED, offset, fingerprint, found)
            if fingerprint:
                return None
            after = expected[1] if len(expected) > 1 else None
            if after is None and not self._closed:
                return None
            at = found.record.offset - self._delta
            if after is None or (after.fingerprint != found.fingerprint and at < after.offset):
                return AlignedPair(RecordMatch.UNSIGNED, at, b"", found)
            expected.popleft()
        if not self._closed:
            return None
        return AlignedPair(RecordMatch.UNSIGNED, found.record.offset - self._delta, b"", found)

    def _resolve(self, *, final: bool) -> list[AlignedPair]:
        pairs: list[AlignedPair] = []
        while self._held:
            if pair := self._match_directly(self._held[0]):
                self._held.popleft()
                pairs.append(pair)
                continue
            if pairs and not final:
                self._level = 0  # they went on equally: a new search begins small
            if not self._closed and len(self._expected) < 2:
                return pairs  # what was signed has to be told first
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
        """How many to leave behind where no meeting is in sight: one side alone if by its offsets it lies first."""
        first, last = (held[place].record.offset - self._delta for place in (0, -1))
        if expected and first > expected[-1].offset:
            return len(expected), 0
        if expected and last < expected[0].offset:
            return 0, len(held)
        return len(expected), len(held)

    def _between(self, expected: Sequence[Expected], held: Sequence[HashedRecord], *, met: bool) -> list[AlignedPair]:
        """The pairs of a stretch in which nothing agrees; both sides are taken from the queues."""
        for _ in expected:
            self._expected.popleft()  # ahead of `next_expected` below
        ends_here = self._closed and not self._expected and not met
        places = {place.offset: place for place in expected if place.fingerprint}
        ends = [*(place.offset for place in expected[1:]), self.next_expected]
        unvouched = [(e.offset, end) for e, end in zip(expected, ends, strict=False) if not e.fingerprint]
        pairs: list[AlignedPair] = []
        for found in held:
            self._held.popleft()
            at = found.record.offset - self._delta
            place = places.pop(at, None)
            nobody = any(start <= at < end or (start <= at and end < 0) for start, end in unvouched)
            if place is not None:
                pairs.append(AlignedPair(RecordMatch.CHANGED, at, place.fingerprint, found))
            elif nobody or (ends_here and (not expected or at > expected[-1].offset)):
                pairs.append(AlignedPair(RecordMatch.UNSIGNED, at, b"", found))
            else:
                pairs.append(AlignedPair(RecordMatch.ADDED, at, b"", found))
        pairs += [AlignedPair(RecordMatch.LOST, place.offset, place.fingerprint, None) for place in places.values()]
        pairs.sort(key=lambda pair: pair.offset)
        return pairs


def _meeting(expected: Sequence[Expected], held: Sequence[HashedRecord]) -> tuple[int, int] | None:
    """The nearest place where both go on equally: how many to leave behind on each side."""
    places: dict[bytes, int] = {}
    for index, found in enumerate(held):
        places.setdefault(found.fingerprint, index)
    best: tuple[int, int] | None = None
    for index, place in enumerate(expected):
        if best is not None and index >= sum(best):
            break
        other = places.get(place.fingerprint)
        if other is not None and (best is None or index + other < sum(best)):
            best = (index, other)
    return best
