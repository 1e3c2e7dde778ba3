"""The one reading rule of an events partition: terms, then gapless sequences.

All readers of events use this and see the same history. On a Claim the current term becomes the Claim's offset; any
other record whose term is not the current term is stale: counted, kept in the log for audit, ignored. Among the
remaining events each aggregate's seq must be gapless; a gap or a repetition is never skipped but raised, because it
means that the log is damaged or that an unauthorized writer appended.

Before: a Kafka record. After: fold it, or `RawEvent.decode` when you need it. Costs about 2 microseconds a record.
Needs fastavro and msgspec, nothing else of loomlog, so a microservice can take the schemas package alone.
"""

from collections.abc import Iterable

from loomlog.schemas.codec import Codec, DecodedRecord, Undecodable, local_codec, peek
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.records import Value


class BrokenSequence(Exception):
    """A gap or repetition in an aggregate's events: the log is damaged or an unauthorized writer appended."""

    def __init__(self, aggregate: str, expected: int, actual: int, offset: int) -> None:
        self.aggregate, self.expected, self.actual, self.offset = aggregate, expected, actual, offset
        super().__init__(f"aggregate {aggregate}: expected seq {expected} at offset {offset}, found {actual}")


class RawEvent(Value, frozen=True):
    """An accepted event, not decoded yet."""

    offset: int
    schema_id: int
    term: int
    seq: int
    aggregate: str
    value: bytes

    def decode(self, codec: Codec | None = None) -> DecodedRecord:
        return (codec or local_codec()).decode(self.value)


class TermReader:
    """Term rule for the records of ONE partition, read in offset order.

    `term` and `next_offset` come from where reading resumes (a projection's cursor, a checkpoint); from the beginning
    they are -1 and 0.
    """

    __slots__ = ("_claim_ids", "claims", "next_offset", "stale", "term")

    def __init__(self, *, codec: Codec | None = None, term: int = -1, next_offset: int = 0) -> None:
        self._claim_ids = (codec or local_codec()).schema_ids_of(frozenset({Claim.SCHEMA}))
        self.term = term
        self.next_offset = next_offset
        self.stale = 0
        self.claims = 0

    def read(self, offset: int, value: bytes | None) -> RawEvent | None:
        """Return the event at that offset, or None for a Claim and for a stale record.

        Raises Undecodable for bytes without an envelope; the position has then advanced, so that the caller can park
        the record and continue.
        """
        self.next_offset = offset + 1
        if value is None:
            raise Undecodable("an events topic holds no tombstones")
        header = peek(value)
        if header.schema_id in self._claim_ids:
            self.term = offset
            self.claims += 1
            return None
        if not self.accepts(offset, header.term):
            return None
        return RawEvent(offset, header.schema_id, header.term, header.seq, header.aggregate, value)

    def accepts(self, offset: int, term: int) -> bool:
        """Return whether the event of that term at that offset counts, for callers that decoded it already. Not for
        Claims.
        """
        self.next_offset = offset + 1
        if term == self.term:
            return True
        self.stale += 1
        return False


def term_at_cut(values: Iterable[bytes | None], codec: Codec | None = None) -> tuple[int, bool]:
    """Return the term in which to begin reading where a log's first records are deleted, and whether a Claim was met.

    The Claim of the first records is deleted with them. The term is the highest one of the records before the next
    Claim, -1 without any: records of fenced owners have lower ones.
    """
    codec = codec or local_codec()
    claims, term = codec.schema_ids_of(frozenset({Claim.SCHEMA})), -1
    for value in values:
        try:
            header = peek(value or b"")
        except Undecodable:
            continue  # it belongs to no term
        if header.schema_id in claims:
            return term, True
        term = max(term, header.term)
    return term, False


class SequenceCheck:
    """Check that each event has the seq after its aggregate's last one.

    The first event of an aggregate is accepted with any seq, because a reader may resume in the middle. Memory: one
    entry an aggregate; call `forget` when it has ended.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def check(self, event: RawEvent) -> None:
        """Raise BrokenSequence unless the event has its aggregate's next seq."""
        last = self._last.get(event.aggregate)
        if last is not None and event.seq != last + 1:
            raise BrokenSequence(event.aggregate, last + 1, event.seq, event.offset)
        self._last[event.aggregate] = event.seq

    def forget(self, aggregate: str) -> None:
        self._last.pop(aggregate, None)
