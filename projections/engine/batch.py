"""Input of a projection: the accepted events of one poll, grouped by aggregate, in log order.

`read_records` applies the one reading rule (loomlog.schemas.reader: terms) to the records of a poll, starting at each
partition's cursor, and decodes the accepted ones. Pure: only the cursors persist between polls, so a poll can be read
again after a failure with the same result.

An unreadable record is never skipped silently. An accepted record whose body does not decode becomes an
`UnreadableEvent` in place of its event, and the fold halts its aggregate there. A record without an envelope belongs to
no aggregate and is only a `ProjectionProblem`, like a gap in the offsets.

Before: the records of a LogTail. After: fold.py, entity_fold.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import field

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import CLASSES, Codec, Undecodable, UnknownSchema, local_codec
from loomlog.schemas.generated.run_events import RECORDS
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent, TermReader, term_at_cut
from loomlog.schemas.records import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKinds:
    """Which records of a topic are events that a projection reads."""

    noun: str
    """What an aggregate of the topic is called in messages, with its article."""
    records: frozenset[type[Any]]
    selects: Callable[[str], bool] | None = None
    """Whether an aggregate is read, by its id; None: all are, and records without an aggregate are problems."""


RUN_EVENTS = EventKinds(noun="a run", records=frozenset(RECORDS))
ENTITY_EVENTS = EventKinds(
    noun="an entity",
    # Every family's: which of them an aggregate takes is known to its family.
    records=frozenset(
        record
        for name, record in CLASSES.items()
        if ".events." in name and not name.startswith(("loom.run.", "loom.stream."))
    ),
)


class PositionedEvent(Value, frozen=True):
    """An accepted event with its position in the log; `value` is the record as stored."""

    partition: int
    offset: int
    envelope: Envelope
    event: Any
    """One of the kinds that were read."""
    value: bytes


class ProjectionProblem(Value, frozen=True):
    """A part of the log that could not be projected, with everything needed to investigate it."""

    partition: int
    offset: int
    kind: str
    """undecodable, unknown_schema, unwritable, broken_sequence or offset_gap; entity_fold.py adds its own."""
    error: str
    timestamp_ms: int
    """Time of the record, so that two builds of the same log hold the same row."""
    key: bytes | None = None
    value: bytes | None = None
    run_id: str = ""
    """The run or the entity."""


class UnreadableEvent(Value, frozen=True):
    """An accepted record that should have been an event of an aggregate."""

    offset: int
    problem: ProjectionProblem


ProjectionItem = PositionedEvent | UnreadableEvent


class Cursor(Value, frozen=True, kw_only=True):
    """How far a partition is projected: everything below `next_offset`, read under `term`."""

    partition: int
    next_offset: int
    term: int
    epoch: int = 0
    """Fencing token: raised by each projector that claims the partition."""


class ProjectionBatch(Value, frozen=True, kw_only=True):
    """The decoded records of one poll."""

    aggregates: dict[str, list[ProjectionItem]] = field(default_factory=dict)
    """By id, in log order."""
    problems: list[ProjectionProblem] = field(default_factory=list)
    """Problems that belong to no aggregate."""
    new_cursors: list[Cursor] = field(default_factory=list)
    """Cursors of the polled partitions after this batch."""
    events: int = 0
    stale: int = 0
    """Records of owners that had lost their partition."""
    oldest_ms: int = 0
    """Time of the oldest record; 0 when there is none."""


def read_records(
    cursors: Mapping[int, Cursor],
    polled: Mapping[int, Sequence[LogRecord]],
    codec: Codec | None = None,
    kinds: EventKinds = RUN_EVENTS,
) -> ProjectionBatch:
    """The events in the polled records. Records below a cursor were projected before and are left out."""
    codec = codec or local_codec()
    aggregates: dict[str, list[ProjectionItem]] = {}
    problems: list[ProjectionProblem] = []
    new_cursors: list[Cursor] = []
    events = stale = oldest_ms = 0
    for partition in sorted(polled):
        cursor = cursors[partition]
        term = cursor.term
        if not cursor.next_offset and polled[partition] and polled[partition][0].offset > 0:
            term, _ = term_at_cut((record.value for record in polled[partition]), codec)
        reader = TermReader(codec=codec, term=term, next_offset=cursor.next_offset)
        for record in polled[partition]:
            if record.offset < reader.next_offset:
                continue
            if record.offset > reader.next_offset and kinds.selects is None:
                problems.append(_gap(reader.next_offset, record))
            if record.timestamp < oldest_ms or not oldest_ms:
                oldest_ms = record.timestamp
            # A selection reads the envelope alone first: it leaves most records out.
            item = _decode_fast(record, codec, kinds) if kinds.selects is None else None
            if item is not None:
                if reader.accepts(record.offset, item.envelope.term):
                    aggregates.setdefault(item.envelope.aggregate, []).append(item)
                    events += 1
                continue
            try:
                raw = reader.read(record.offset, record.value)
            except Undecodable as unframed:
                if kinds.selects is None:
                    problems.append(_problem(record, unframed))
                continue
            if raw is None or (kinds.selects is not None and not kinds.selects(raw.aggregate)):
                continue
            if "\x00" in raw.aggregate:
                text = f"the id of {kinds.noun} has a NUL character, which no table can hold"
                problems.append(_problem(record, Undecodable(text)))
                continue
            aggregates.setdefault(raw.aggregate, []).append(_item(record, raw, codec, kinds))
            events += 1
        stale += reader.stale
        if reader.next_offset > cursor.next_offset:
            new_cursors.append(
                Cursor(partition=partition, next_offset=reader.next_offset, term=reader.term, epoch=cursor.epoch)
            )
    return ProjectionBatch(
        aggregates=aggregates,
        problems=problems,
        new_cursors=new_cursors,
        events=events,
        stale=stale,
        oldest_ms=oldest_ms,
    )


def broken_sequence_problem(item: PositionedEvent, expected: int, noun: str = "run") -> ProjectionProblem:
    """The problem of an event that is not the next of its aggregate."""
    return ProjectionProblem(
        partition=item.partition,
        offset=item.offset,
        kind="broken_sequence",
        error=f"{noun} {item.envelope.aggregate}: expected seq {expected} at offset {item.offset}, "
        f"found {item.envelope.seq}; the log is damaged or an illegal writer appended",
        timestamp_ms=item.envelope.at_ms,
        value=item.value,
        run_id=item.envelope.aggregate,
    )


def unwritable_event(item: PositionedEvent, error: str) -> UnreadableEvent:
    """Replacement of an event whose rows Postgres refused."""
    problem = ProjectionProblem(
        partition=item.partition,
        offset=item.offset,
        kind="unwritable",
        error=f"Postgres refused its rows: {error}",
        timestamp_ms=item.envelope.at_ms,
        value=item.value,
        run_id=item.envelope.aggregate,
    )
    return UnreadableEvent(item.offset, problem)


def _decode_fast(record: LogRecord, codec: Codec, kinds: EventKinds) -> PositionedEvent | None:
    """The event of an ordinary record, decoded in one step; None for all other records, which take the slow path.

    Reading the envelope first would cost as much as reading the whole record.
    """
    value = record.value
    if value is None or (decoded := codec.decode_fast(value)) is None:
        return None
    envelope, event = decoded
    if envelope is None or type(event) not in kinds.records or "\x00" in envelope.aggregate:
        return None
    return PositionedEvent(record.partition, record.offset, envelope, event, value)


def _item(record: LogRecord, raw: RawEvent, codec: Codec, kinds: EventKinds) -> ProjectionItem:
    try:
        decoded = raw.decode(codec)
        if decoded.envelope is None or type(decoded.record) not in kinds.records:
            raise Undecodable(f"{type(decoded.record).__name__} is not an event of {kinds.noun}")
    except Undecodable as error:
        return UnreadableEvent(record.offset, _problem(record, error, raw.aggregate))
    return PositionedEvent(record.partition, record.offset, decoded.envelope, decoded.record, raw.value)


def _problem(record: LogRecord, error: Undecodable, run_id: str = "") -> ProjectionProblem:
    return ProjectionProblem(
        partition=record.partition,
        offset=record.offset,
        kind="unknown_schema" if isinstance(error, UnknownSchema) else "undecodable",
        error=str(error),
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        run_id=run_id,
    )


def _gap(expected: int, record: LogRecord) -> ProjectionProblem:
    return ProjectionProblem(
        partition=record.partition,
        offset=expected,
        kind="offset_gap",
        error=f"offsets {expected} to {record.offset - 1} of partition {record.partition} are not in the log: "
        "the log was truncated, or a transactional writer wrote to it",
        timestamp_ms=record.timestamp,
    )
