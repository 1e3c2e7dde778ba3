"""Encoding and decoding of records, without a network.

The wire format is Confluent framing: a zero byte, the schema id in 4 bytes big-endian, the Avro body. Ids come from the
committed lock (ids.json) or from a table of a schema registry (connectors/kafka/schema_registry.py); the codec only
sees the table. An event's body begins with its envelope, term and seq first, so `peek` reads a few varints and no more.

Before: the bytes of a Kafka record. After: loomlog.schemas.reader applies the term rule, services/stream folds.

Not chosen: generic dicts inside (no types), or a schema per message (the id is four bytes).
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Self

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from loomlog.schemas import generated, schema_safety
from loomlog.schemas.fast_decoder import FALLBACK_ERRORS, FastDecoder, compile_decoder
from loomlog.schemas.fast_encoder import ZIGZAG, Writer, compile_writer
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Record, Value

HERE = Path(__file__).parent
FRAME_BYTES = 5
DIGEST_BYTES = 16
"""Bytes of a digest in the hash chain: 128 bits are enough against a second record with the same digest, at half the
size.
"""
MAGIC = 0
EVENT_NAMESPACES = (".events.",)


class Undecodable(Exception):
    """Bytes that are not a loomlog record: no frame, cut short, or a body that does not fit its schema."""


class UnknownSchema(Undecodable):
    """A valid frame whose schema id is not in the table: written by a newer version or another system."""

    def __init__(self, schema_id: int) -> None:
        self.schema_id = schema_id
        super().__init__(
            f"schema id {schema_id} is not in schemas/ids.json nor in the registry; "
            "the writer is newer than this reader or belongs to another system"
        )


SCHEMA_IDS_CACHE_MAX = 64
"""Maximum cached answers of Codec.schema_ids_of. Readers need a dozen; an external query may name any type."""

CLASSES: dict[str, type[Any]] = {
    record.SCHEMA: record
    for info in iter_modules(generated.__path__)
    if info.name != "values"
    for module in (import_module(f"{generated.__name__}.{info.name}"),)
    for record in module.RECORDS
}


class DecodedRecord(Value, frozen=True, kw_only=True):
    """A record with its envelope; the envelope is None for commands and plain records."""

    record: Any
    envelope: Envelope | None


class SchemaVersion(Value, frozen=True):
    """One written version of a record's schema."""

    name: str
    version: int
    schema: Any


class Codec:
    """Encoder and decoder for one table of schema ids.

    `ids` maps schema ids to (full record name, version); without it the committed lock is used. The newest version of
    a name is the one written. Reading an older version fills new fields with their defaults.
    """

    def __init__(self, ids: Mapping[int, tuple[str, int]] | None = None) -> None:
        table = _load_locked_ids() if ids is None else dict(ids)
        self._versions: dict[int, SchemaVersion] = {}
        self._schema_ids_cache: dict[frozenset[str], frozenset[int]] = {}
        """Cached answers of `schema_ids_of`, which every new reader calls; cleared by `add_schema`."""
        self._encodings: dict[str, tuple[bytes, Any]] = {}
        self._body_writers: dict[str, tuple[bytes, Writer]] = {}
        newest: dict[str, int] = {}
        for schema_id, (name, version) in sorted(table.items(), key=lambda item: item[1][1]):
            schema = _parse_released(name, version)
            self._versions[schema_id] = SchemaVersion(name, version, schema)
            if version >= newest.get(name, 0):
                newest[name] = version
                self._encodings[name] = (bytes([MAGIC]) + schema_id.to_bytes(4, "big"), schema)
                if any(mark in name for mark in EVENT_NAMESPACES):
                    self._body_writers[name] = (self._encodings[name][0], _compile_body_writer(name, version))
        # Only the newest versions have a fast decoder: an older version has fields to fill in.
        self._fast_decoders: dict[bytes, FastDecoder] = {
            frame: decoder
            for name, (frame, _) in self._encodings.items()
            if (decoder := _compile_fast_decoder(name, newest[name]))
        }
        self._schema_ids = {name: int.from_bytes(frame[1:], "big") for name, (frame, _) in self._encodings.items()}

    @classmethod
    def for_foreign_records(cls) -> Self:
        """Return a codec for foreign records; it knows no schema id until `add_schema` registers one."""
        made = cls()
        made._versions = {}
        return made

    def add_schema(self, schema_id: int, name: str, version: int, schema: Any) -> None:
        """Register the schema of the records with this id.

        Raises UnknownSchema when the name is not a record of loomlog, Undecodable when the schema is invalid or could
        make reading a record unbounded (schemas/schema_safety.py).
        """
        if name not in self._encodings:
            raise UnknownSchema(schema_id)
        try:
            parsed = parse_schema(schema, named_schemas={})
            schema_safety.check_schema(parsed)
        except Exception as error:
            raise Undecodable(f"the schema of {name}: {type(error).__name__}: {error}") from error
        self._versions[schema_id] = SchemaVersion(name, version, parsed)
        self._schema_ids_cache.clear()

    def schema_version_of(self, value: bytes) -> tuple[int, SchemaVersion]:
        """Return the schema id and the schema of these bytes; raises like `decode`."""
        schema_id = self._schema_id(value)
        return schema_id, self._versions[schema_id]

    def schema_id_of(self, name: str) -> int:
        """Return the schema id with which records of that full name are written."""
        return self._schema_ids[name]

    def schema_ids_of(self, names: frozenset[str]) -> frozenset[int]:
        """Return every schema id, old versions included, of records with these full names."""
        schema_ids = self._schema_ids_cache.get(names)
        if schema_ids is None:
            schema_ids = frozenset(i for i, version in self._versions.items() if version.name in names)
            if len(self._schema_ids_cache) < SCHEMA_IDS_CACHE_MAX:
                self._schema_ids_cache[names] = schema_ids
        return schema_ids

    def names_containing(self, value: str) -> frozenset[str]:
        """Return the full names of the records that contain a value of that full name, in any version."""
        return frozenset(v.name for v in self._versions.values() if _contains_type(v.schema, value))

    def encode(self, record: Record) -> bytes:
        """Encode a command or a plain record."""
        frame, schema = self._encodings[record.SCHEMA]
        out = BytesIO()
        out.write(frame)
        schemaless_writer(out, schema, record.to_avro())
        return out.getvalue()

    def encode_event(self, envelope: Envelope, event: Record) -> bytes:
        """Encode an event with its envelope."""
        frame, schema = self._encodings[event.SCHEMA]
        body = event.to_avro()
        body["envelope"] = envelope.to_avro()
        out = BytesIO()
        out.write(frame)
        schemaless_writer(out, schema, body)
        return out.getvalue()

    def encode_decision_event(self, common: "DecisionEnvelope", seq: int, prev: bytes, event: Record) -> bytes:
        """Return the same bytes as `encode_event`, for the events of one decision, whose envelopes are nearly equal."""
        frame, body = self._body_writers[event.SCHEMA]
        return b"".join((frame, common.term, ZIGZAG[seq], common.middle, prev, body(event)))

    def name_of(self, value: bytes) -> str:
        """Return the full name of the encoded record; raises like `decode`."""
        return self._versions[self._schema_id(value)].name

    def decode(self, value: bytes) -> DecodedRecord:
        """Decode a record. Raises UnknownSchema or Undecodable; reads nothing past the body."""
        decoded = self.decode_fast(value)
        if decoded is not None:
            return DecodedRecord(record=decoded[1], envelope=decoded[0])
        version = self._versions[self._schema_id(value)]
        source = BytesIO(value)
        source.seek(FRAME_BYTES)
        newest = self._encodings[version.name][1]
        try:
            plain: Any = schemaless_reader(source, version.schema, None if version.schema is newest else newest)
        except EOFError as error:
            raise Undecodable(f"{version.name} version {version.version}: the body is cut short") from error
        except Exception as error:
            raise Undecodable(f"{version.name} version {version.version}: {type(error).__name__}: {error}") from error
        if source.tell() != len(value):
            raise Undecodable(f"{version.name}: {len(value) - source.tell()} bytes are left after the body")
        envelope = plain.get("envelope")
        is_event = any(mark in version.name for mark in EVENT_NAMESPACES)
        return DecodedRecord(
            record=CLASSES[version.name].from_avro(plain),
            envelope=Envelope.from_avro(envelope) if is_event and envelope is not None else None,
        )

    def decode_fast(self, value: bytes) -> tuple[Envelope | None, Any] | None:
        """Decode like `decode`, but return a pair; None when only `decode` can handle the bytes, valid or not."""
        decode = self._fast_decoders.get(value[:FRAME_BYTES])
        if decode is None:
            return None
        try:
            return decode(value, FRAME_BYTES)
        except FALLBACK_ERRORS:
            return None

    def _schema_id(self, value: bytes) -> int:
        if len(value) < FRAME_BYTES or value[0] != MAGIC:
            raise Undecodable(
                f"{len(value)} bytes beginning {value[:8]!r} are not framed: expected 0 and a 4-byte schema id"
            )
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        if schema_id not in self._versions:
            raise UnknownSchema(schema_id)
        return schema_id


class DecisionEnvelope:
    """Encoded common part of the envelopes of one decision's events: all fields but seq and prev.

    An envelope is encoded field by field in this order, so that a batch of events pays for it once. The property test
    of `encode_decision_event` keeps it equal to the schema.
    """

    __slots__ = ("middle", "term")

    def __init__(
        self, *, term: int, aggregate: str, tenant: str, at_ms: int, cause_id: str = "", cause_offset: int = -1
    ) -> None:
        self.term = _cached_zigzag(term)
        name, owner, cause = aggregate.encode(), tenant.encode(), cause_id.encode()
        self.middle = b"".join(
            (
                ZIGZAG[len(name)],
                name,
                ZIGZAG[len(owner)],
                owner,
                _cached_zigzag(at_ms),
                ZIGZAG[len(cause)],
                cause,
                ZIGZAG[cause_offset],
            )
        )


class EventHeader(Value, frozen=True):
    """The first fields of an event, read without decoding the rest."""

    schema_id: int
    term: int
    seq: int
    aggregate: str


def peek(value: bytes) -> EventHeader:
    """Return schema id, term, seq and aggregate of an event; about 1 microsecond. Raises Undecodable."""
    if len(value) < FRAME_BYTES or value[0] != MAGIC:
        raise Undecodable(f"{len(value)} bytes beginning {value[:8]!r} are not framed")
    try:
        term, at = _varint(value, FRAME_BYTES)
        seq, at = _varint(value, at)
        size, at = _varint(value, at)
        if size < 0 or at + size > len(value):
            raise Undecodable("the envelope is cut short")
        return EventHeader(int.from_bytes(value[1:FRAME_BYTES], "big"), term, seq, value[at : at + size].decode())
    except (IndexError, UnicodeDecodeError) as error:
        raise Undecodable(f"the envelope is not readable: {error}") from error


def read_envelope(value: bytes) -> tuple[Envelope, int]:
    """Return an event's envelope and the offset of the rest of the body; cheaper than decoding all.
    Raises Undecodable.
    """
    try:
        term, at = _varint(value, FRAME_BYTES)
        seq, at = _varint(value, at)
        aggregate, at = read_text(value, at)
        tenant, at = read_text(value, at)
        at_ms, at = _varint(value, at)
        cause_id, at = read_text(value, at)
        cause_offset, at = _varint(value, at)
    except (IndexError, UnicodeDecodeError) as error:
        raise Undecodable(f"the envelope is not readable: {error}") from error
    prev = value[at : at + DIGEST_BYTES]
    if len(prev) != DIGEST_BYTES:
        raise Undecodable("the envelope is cut short")
    return Envelope(
        term=term,
        seq=seq,
        aggregate=aggregate,
        tenant=tenant,
        at_ms=at_ms,
        cause_id=cause_id,
        cause_offset=cause_offset,
        prev=prev,
    ), at + DIGEST_BYTES


def read_text(value: bytes, at: int) -> tuple[str, int]:
    """Return the Avro string at a position, and the position after it."""
    size, at = _varint(value, at)
    if size < 0 or at + size > len(value):
        raise Undecodable("a text of the record is cut short")
    return value[at : at + size].decode(), at + size


def digest(value: bytes) -> bytes:
    """Return the digest that the aggregate's next event carries as `prev`."""
    return sha256(value).digest()[:DIGEST_BYTES]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise Undecodable("a number of the envelope is longer than 64 bits")


_cached_zigzag = lru_cache(maxsize=64)(ZIGZAG.__getitem__)
"""Cached encodings of large numbers that repeat for a while: terms of our partitions, the current millisecond."""


@cache
def local_codec() -> Codec:
    """Return the codec for the committed lock."""
    return Codec()


@cache
def _load_locked_ids() -> dict[int, tuple[str, int]]:
    lock = json.loads((HERE / "ids.json").read_text())
    return {v["id"]: (name, v["version"]) for name, versions in lock.items() for v in versions}


@cache
def _parse_released(name: str, version: int) -> Any:
    return parse_schema(_load_released(name, version), named_schemas={})


@cache
def _compile_fast_decoder(name: str, version: int) -> FastDecoder | None:
    is_event = any(mark in name for mark in EVENT_NAMESPACES)
    return compile_decoder(_load_released(name, version), CLASSES[name], has_envelope=is_event)


@cache
def _compile_body_writer(name: str, version: int) -> Writer:
    """Return a writer of an event without its first field, the envelope."""
    schema = _load_released(name, version)
    assert schema["fields"][0]["name"] == "envelope", f"{name}: an event begins with its envelope"
    known: Any = parse_schema(schema, named_schemas={})
    return compile_writer({**known, "fields": known["fields"][1:]})


def _contains_type(schema: Any, value: str) -> bool:
    """Return whether a parsed schema contains that type anywhere."""
    if isinstance(schema, dict):
        return schema.get("name") == value or any(_contains_type(part, value) for part in schema.values())
    if isinstance(schema, list):
        return any(_contains_type(part, value) for part in schema)
    return bool(schema == value)


def released_schema(name: str, version: int) -> Any:
    """Return the schema of a version as it was released: a tree of plain values."""
    return _load_released(name, version)


def _load_released(name: str, version: int) -> Any:
    return json.loads((HERE / "released" / name / f"{version}.avsc").read_text())
