"""Log records as operators see them: read from the broker, decoded, classified by the reading rule.

On an events topic each record is legal, a Claim, or stale (written by a replaced owner: stored, but ignored by every
reader). To classify a record in the middle, the reader needs the term in force there, which is the offset of the
nearest Claim before it; it is searched for backwards, to the beginning of the partition if need be.

Not chosen: guessing the term from the records themselves, as long as all of them could be stale.

Before: browser.py, services/cli/log/events.py. After: connectors/kafka, schemas/reader.py.
"""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable, local_codec, peek
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.position import Position
from loomlog.schemas.reader import TermReader, term_at_cut
from loomlog.services.application.log.json_types import LoggedRecord
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import all_families

EVENTS_TOPIC = "loom.run.events"
ENTITY_TOPIC = "loom.entity.events"
CHANNEL_TOPIC = "loom.channel.events"
EVENTS_TOPICS = (EVENTS_TOPIC, ENTITY_TOPIC, CHANNEL_TOPIC)
"""Topics that the auditor signs."""
TOPICS_OF_SETS = {ENTITY_SET: ENTITY_TOPIC, CHANNEL_SET: CHANNEL_TOPIC}
"""Events topic of each topic set of aggregates."""
TOPIC_PREFIX = "loom."
CHUNK_RECORDS = 2_000
"""Records read at a time in the backward search for a Claim."""
LEGAL, CLAIM, STALE, PLAIN, UNREADABLE = "legal", "claim", "stale", "plain", "unreadable"
"""Kinds of records; a plain one is of a topic that has no terms."""
TERM_SUFFIXES = (".run.events", ".entity.events", ".channel.events")
"""Ends of the names of topics that are written under terms; those of clients and providers have many writers."""
UNREADABLE_BYTES_SHOWN = 64 * 1024
"""Bytes shown of a record that cannot be decoded: enough to see what it is."""
HIDDEN_FIELDS = frozenset({"wrapped", "sealed_credentials"})
"""Fields of keys and credentials. They are encrypted, and no operator needs them."""
HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """A record in display form. Numbers are -1 where it has none; `payload` is empty when it cannot be decoded."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    kind: str
    type: str = ""
    key: str = ""
    run_id: str = ""
    tenant: str = ""
    term: int = -1
    term_in_force: int = -1
    seq: int = -1
    cause_id: str = ""
    cause_offset: int = -1
    payload: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    """Bytes of the value."""
    prev: bytes = b""
    """Hash of the aggregate's previous record, 16 bytes; empty in records that are no events of an aggregate."""
    value: bytes = b""
    """First bytes of a value that cannot be decoded; empty otherwise."""
    error: str = ""

    @property
    def position(self) -> str:
        return str(Position(topic=self.topic, partition=self.partition, offset=self.offset))


def is_aggregate_id(text: str) -> bool:
    """Return whether a text is meant as the full id of an aggregate: ids of runs have no colon."""
    return ":" in text


def topic_of_aggregate(aggregate: str) -> str:
    """Return the events topic of an aggregate, by the family in its full id; of an unknown family that of entities."""
    name = aggregate.partition(":")[0]
    declared = next((family for family in all_families() if family.name == name), None)
    return TOPICS_OF_SETS[ENTITY_SET if declared is None else declared.topics]


def has_terms(topic: str) -> bool:
    """Return whether the reading rule applies: the topic is written by owners of partitions, under terms."""
    return topic.endswith(TERM_SUFFIXES)


class RecordClassifier:
    """Classifier of the records of one partition, which must be passed in order."""

    def __init__(self, topic: str, *, term: int, next_offset: int, codec: Codec | None = None) -> None:
        self._codec = codec or local_codec()
        self._reader = TermReader(codec=self._codec, term=term, next_offset=next_offset) if has_terms(topic) else None

    def classify(self, record: LogRecord) -> RecordView:
        """Return the record in display form, with its kind."""
        reader = self._reader
        if reader is None:
            return describe_record(record, PLAIN, self._codec)
        claims = reader.claims
        try:
            raw = reader.read(record.offset, record.value)
        except Undecodable:
            return describe_record(record, UNREADABLE, self._codec, term=reader.term)
        kind = LEGAL if raw is not None else CLAIM if reader.claims > claims else STALE
        return describe_record(record, kind, self._codec, term=reader.term)

    @property
    def term(self) -> int:
        """The term in force after the last record; -1 for none."""
        return -1 if self._reader is None else self._reader.term

    def pass_over(self, record: LogRecord) -> None:
        """Read the term of a record that is not shown; costs a fraction of `classify`."""
        if self._reader is not None:
            with suppress(Undecodable):
                self._reader.read(record.offset, record.value)


def describe_record(record: LogRecord, kind: str, codec: Codec, *, term: int = -1) -> RecordView:
    """Return the record in display form, or the decoding error of an undecodable one."""
    common: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _decode_text(record.key or b""),
        "headers": {name: _decode_text(value) for name, value in record.headers},
        "term_in_force": term,
        "size_bytes": len(record.value or b""),
    }
    if record.value is None:
        return RecordView(**common, at_ms=record.timestamp, kind=kind, type="(tombstone)")
    try:
        decoded = codec.decode(record.value)
    except Undecodable as error:
        value = record.value[:UNREADABLE_BYTES_SHOWN]
        return RecordView(**common, at_ms=record.timestamp, kind=UNREADABLE, error=str(error), value=value)
    body = decoded.record.to_avro()
    envelope = decoded.envelope
    command = body.pop("envelope", None) or {} if envelope is None else {}
    return RecordView(
        **common,
        at_ms=envelope.at_ms if envelope else command.get("issued_at_ms") or record.timestamp,
        kind=kind,
        type=type(decoded.record).__name__,
        run_id=envelope.aggregate if envelope and kind != CLAIM else str(body.get("run_id", "")),
        tenant=envelope.tenant if envelope else str(command.get("tenant", "")),
        term=envelope.term if envelope else -1,
        seq=envelope.seq if envelope and kind != CLAIM else -1,
        cause_id=envelope.cause_id if envelope else str(command.get("command_id", "")),
        cause_offset=envelope.cause_offset if envelope else -1,
        prev=envelope.prev if envelope and kind != CLAIM else b"",
        payload=hide_secrets(body),
    )


def hide_secrets(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a record without keys and credentials."""
    return {name: HIDDEN if name in HIDDEN_FIELDS and part else part for name, part in body.items()}


def record_json(view: RecordView) -> LoggedRecord:
    """Return the record with the names of the API's audit view, and the fields that only the log has."""
    return {
        "position": view.position,
        "topic": view.topic,
        "partition": view.partition,
        "offset": view.offset,
        "kind": view.kind,
        "stale": view.kind == STALE,
        "term": _none_if_negative(view.term),
        "term_in_force": _none_if_negative(view.term_in_force),
        "seq": _none_if_negative(view.seq),
        "run_id": view.run_id or None,
        "tenant_id": view.tenant or None,
        "type": view.type or None,
        "at": format_rfc3339(view.at_ms),
        "cause_id": view.cause_id or None,
        "cause_offset": _none_if_negative(view.cause_offset),
        "key": view.key or None,
        "headers": dict(view.headers),
        "prev_hash": view.prev.hex() or None,
        "size_bytes": view.size_bytes,
        "error": view.error or None,
        "value_base64": base64.b64encode(view.value).decode() or None,
        "payload": to_json_value(view.payload),
    }


def to_json_value(value: Any) -> Any:
    """Convert a value to one that JSON can hold: bytes become their text, or hex."""
    if isinstance(value, bytes):
        return _decode_text(value)
    if isinstance(value, Mapping):
        return {str(name): to_json_value(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json_value(part) for part in value]
    return value


async def find_term_before(
    ranges: LogRanges, topic: str, partition: int, offset: int, codec: Codec | None = None
) -> int:
    """Return the term in force at an offset: the offset of the nearest Claim before it, -1 without one."""
    claim_ids = (codec or local_codec()).schema_ids_of(frozenset({Claim.SCHEMA}))
    end, beginning = offset, await ranges.beginning_offset(topic, partition)
    while end > beginning:
        start = max(beginning, end - CHUNK_RECORDS)
        for record in reversed(await read_range(ranges, topic, partition, start, end)):
            try:
                if peek(record.value or b"").schema_id in claim_ids:
                    return record.offset
            except Undecodable:
                continue  # not a Claim; the reader of this record reports the error
        end = start
    if not beginning:
        return -1
    # The Claim of the first records is deleted.
    first = await read_range(
        ranges, topic, partition, beginning, min(beginning + CHUNK_RECORDS, await ranges.end_offset(topic, partition))
    )
    return term_at_cut((record.value for record in first), codec)[0]


async def read_range(ranges: LogRanges, topic: str, partition: int, start: int, end: int) -> list[LogRecord]:
    """Read the records from `start` up to but not including `end`."""
    records: list[LogRecord] = []
    if start >= end:
        return records
    async with await ranges.read(topic, partition, start, end) as chunks:
        async for chunk in chunks:
            records += chunk
    return records


async def read_record(
    ranges: LogRanges, topic: str, partition: int, offset: int, codec: Codec | None = None
) -> RecordView:
    """Read and classify one record. Raises Refused(not_found)."""
    beginning = await ranges.beginning_offset(topic, partition)
    end = await ranges.end_offset(topic, partition)
    if not beginning <= offset < end:
        has = f"it holds {beginning} to {end - 1}" if end > beginning else "it is empty"
        raise Refused("not_found", f"There is no record {topic}/{partition}:{offset}: {has}.")
    records = await read_range(ranges, topic, partition, offset, offset + 1)
    if not records:
        removed = "compaction or the broker took its offset"
        raise Refused("not_found", f"There is no record {topic}/{partition}:{offset}: {removed}.")
    term = await find_term_before(ranges, topic, partition, offset, codec) if has_terms(topic) else -1
    return RecordClassifier(topic, term=term, next_offset=offset, codec=codec).classify(records[0])


def _none_if_negative(number: int) -> int | None:
    return None if number < 0 else number


def _decode_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() or "\n" in text else value.hex()
