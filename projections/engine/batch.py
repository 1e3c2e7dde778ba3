"""Input of a projection: the accepted events of one poll, grouped by run, in log order.

`read_records` applies the one reading rule (loomlog.schemas.reader: terms) to the records of a poll, starting at each
partition's cursor, and decodes the accepted ones. Pure: only the cursors persist between polls, so a poll can be read
again after a failure with the same result.

An unreadable record is never skipped silently. An accepted record whose body does not decode becomes an
`UnreadableEvent` in place of its event, and fold.py halts the run there. A record without an envelope belongs to no run
and is only a `ProjectionProblem`, like a gap in the offsets.

Before: the records of a LogTail. After: fold.py.
"""

from collections.abc import Mapping, Sequence

from msgspec import field

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable, UnknownSchema, local_codec
from loomlog.schemas.generated.run_events import RECORDS, Event
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import Value

RUN_EVENTS = frozenset(RECORDS)


class PositionedEvent(Value, frozen=True):
    """An accepted event with its position in the log; `value` is the record as stored."""

    partition: int
    offset: int
    envelope: Envelope
    event: Event
    value: bytes


class ProjectionProblem(Value, frozen=True):
    """A part of the log that could not be projected, with everything needed to investigate it."""

    partition: int
    offset: int
    kind: str
    """undecodable, unknown_schema, unwritable, broken_sequence or offset_gap."""
    error: str
    timestamp_ms: int
    """Time of the record, so that two builds of the same log hold the same row."""
    key: bytes | None = None
    value: bytes | None = None
    run_id: str = ""


class UnreadableEvent(Value, frozen=True):
    """An accepted record that should have been an event of a run."""

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

    runs: dict[str, list[ProjectionItem]] = field(default_factory=dict)
    """By run id, in log order."""
    problems: list[ProjectionProblem] = field(default_factory=list)
    """Problems that belong to no run."""
    new_cursors: list[Cursor] = field(default_factory=list)
    """Cursors of the polled partitions after this batch."""
    events: int = 0
    stale: int = 0
    """Records of owners that had lost their partition."""
    oldest_ms: int = 0
    """Time of the oldest record; 0 when there is none."""


def read_records(
    cursors: Mapping[int, Cursor], polled: Mapping[int, Sequence[LogRecord]], codec: Codec | None = None
) -> ProjectionBatch:
    """The events in the polled records. Records below a cursor were projected before and are left out."""
    codec = codec or local_codec()
    runs: dict[str, list[ProjectionItem]] = {}
    problems: list[ProjectionProblem] = []
    new_cursors: list[Cursor] = []
    events = stale = oldest_ms = 0
    for partition in sorted(polled):
        cursor = cursors[partition]
        reader = TermReader(codec=codec, term=cursor.term, next_offset=cursor.next_offset)
        for record in polled[partition]:
            if record.offset < reader.next_offset:
                continue
            if record.offset > reader.next_offset:
                problems.append(_gap(reader.next_offset, record))
            if record.timestamp < oldest_ms or not oldest_ms:
                oldest_ms = record.timestamp
            item = _decode_fast(record, codec)
            if item is not None:
                if reader.accepts(record.offset, item.envelope.term):
                    runs.setdefault(item.envelope.aggregate, []).append(item)
                    events += 1
                continue
            try:
                raw = reader.read(record.offset, record.value)
            except Undecodable as unframed:
                problems.append(_problem(record, unframed))
                continue
            if raw is not None and "\x00" in raw.aggregate:
                problems.append(_problem(record, Undecodable("a run id with a NUL character, which no table can hold")))
            elif raw is not None:
                runs.setdefault(raw.aggregate, []).append(_item(record, raw, codec))
                events += 1
        stale += reader.stale
        if reader.next_offset > cursor.next_offset:
            new_cursors.append(
                Cursor(partition=partition, next_offset=reader.next_offset, term=reader.term, epoch=cursor.epoch)
            )
    return ProjectionBatch(
        runs=runs, problems=problems, new_cursors=new_cursors, events=events, stale=stale, oldest_ms=oldest_ms
    )


def broken_sequence_problem(item: PositionedEvent, expected: int) -> ProjectionProblem:
    """The problem of an event that is not the next of its run."""
    return ProjectionProblem(
        partition=item.partition,
        offset=item.offset,
        kind="broken_sequence",
        error=f"run {item.envelope.aggregate}: expected seq {expected} at offset {item.offset}, "
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


def _decode_fast(record: LogRecord, codec: Codec) -> PositionedEvent | None:
    """The event of an ordinary record, decoded in one step; None for all other records, which take the slow path.

    Reading the envelope first would cost as much as reading the whole record.
    """
    value = record.value
    if value is None or (decoded := codec.decode_fast(value)) is None:
        return None
    envelope, event = decoded
    if envelope is None or type(event) not in RUN_EVENTS or "\x00" in envelope.aggregate:
        return None
    return PositionedEvent(record.partition, record.offset, envelope, event, value)


def _item(record: LogRecord, raw: RawEvent, codec: Codec) -> ProjectionItem:
    try:
        decoded = raw.decode(codec)
        if decoded.envelope is None or type(decoded.record) not in RUN_EVENTS:
            raise Undecodable(f"{type(decoded.record).__name__} is not an event of a run")
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
