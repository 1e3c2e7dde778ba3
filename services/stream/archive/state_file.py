"""A state file: everything of an installation or of one tenant in one file, runs and the aggregates of other families.

The content is one JSON document in lines, so that it is written and read once through, a line at a time:

    {..., "sections":{                     format, schema_version, time, label, tenant, how far each partition was read
    "pauses":{"version":1,"entries":[      pauses wider than a run
    ...                                    an entry a line, from the second on with a comma before it
    ]}
    ,"limits":{...                         budget limits, with what was spent under them
    ,"schemas":{...   ,"blobs":{...        Avro schemas of the records; payloads that events refer to, in parts
    ,"runs":{...                           of each run a head, then its events from seq 1 as stored in the log
    ,"entities":{...                       the same of each aggregate of the other families
    ,"left_out":{...                       of each family how many aggregates are not in the file, and why
    },"counts":{...},"sha256":"..."}       the hash of all lines before this one

Runs are in the order of their first events within a partition, so a run that others refer to comes before them. On disk
and on the wire it is gzip; the plain document is read as well. A file without its last line was truncated, one with
another hash was altered; its reader raises before anything is restored.

Before: state_export.py. After: state_reader.py, services/application/transfer/state_files.py. Not chosen: bundles of
runs in a zip (its directory is at the end, so nothing could be streamed in), a copy of the topics (offsets and terms
mean nothing in another cluster, least of all with other partition counts).
"""

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from loomlog.schemas.codec import Codec, released_schema
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Value
from loomlog.services.core.pauses import WidePause
from loomlog.services.stream.archive.bundle import BLOB_PART_BYTES, GZIP, BlobPart
from loomlog.services.stream.archive.file_formats import STATE

FORMAT = STATE
VERSION = 4
"""Format version; 1 had no limits, 2 no entities, 3 no channels and nothing of what is left out."""
SUFFIX = ".loomlog-state.gz"
PAUSES, LIMITS, SCHEMAS, BLOBS, RUNS, ENTITIES = "pauses", "limits", "schemas", "blobs", "runs", "entities"
LEFT_OUT = "left_out"
SECTIONS: Mapping[str, int] = {PAUSES: 1, LIMITS: 1, SCHEMAS: 1, BLOBS: 1, RUNS: 1, ENTITIES: 1, LEFT_OUT: 1}
"""The sections in their order, each with its version."""
SINCE: Mapping[str, int] = {LIMITS: 2, ENTITIES: 3, LEFT_OUT: 4}
"""First file version with a section; absent: version 1."""
OPENS = b',"sections":{\n'
CLOSES = b"]}\n"
ENDS = b"},"


class BrokenStateFile(Exception):
    """The file is not a state file, was truncated, or was altered. The message names the place."""


class UnsupportedStateFile(BrokenStateFile):
    """A later version of loomlog wrote it."""


class UnknownStateSection(BrokenStateFile):
    """It has a version or a section that never existed."""


class StateHeader(Value, frozen=True, kw_only=True):
    """Header of a state file. `tenant` is empty for all tenants."""

    created_at: str
    """RFC 3339."""
    label: str
    tenant: str
    topic: str
    reducer_version: int
    include_history: bool
    positions: Mapping[str, int]
    """By partition: the state covers all records below this offset."""
    entity_topic: str = ""
    """Topic of the events of entities; empty in a file of a version without them."""
    entity_positions: Mapping[str, int] = {}
    """By partition of that topic."""
    further_positions: Mapping[str, Mapping[str, int]] = {}
    """The same of the events topics of further families, by topic."""


class StatedLimit(Value, frozen=True, kw_only=True):
    """A monthly limit of an account, as in SetLimit, and what was spent or reserved in `month`."""

    scope: str
    tenant: str
    scope_id: str
    soft_tokens: int | None
    hard_tokens: int | None
    soft_micros: int | None
    hard_micros: int | None
    strict: bool
    currency: str
    month: str
    """UTC, YYYY-MM."""
    used_tokens: int
    used_micros: int


class StatedRun(Value, frozen=True, kw_only=True):
    """The head of a run; its events follow."""

    run_id: str
    tenant: str
    partition: int
    first_offset: int
    events: int
    tail_digest: str
    """Digest of its last event, hex."""
    is_over: bool


class StatedEvent(Value, frozen=True):
    """An event of the run whose head came last."""

    event: RawEvent


class StatedAggregate(Value, frozen=True, kw_only=True):
    """The head of an aggregate of another family; its events follow."""

    aggregate: str
    """Full id: <family>:<tenant>/<name>."""
    tenant: str
    partition: int
    first_offset: int
    events: int
    tail_digest: str
    """Digest of its last event, hex."""
    topic: str = ""
    """Topic of its events; empty: the entity topic of the header."""


class StatedOmission(Value, frozen=True, kw_only=True):
    """Aggregates of a family that are not in the file."""

    family: str
    aggregates: int
    """How many; 0: it is not known."""
    events: int
    """How many the log has of them."""
    reason: str

    @property
    def sentence(self) -> str:
        """Return what is left out, for people."""
        number = f"aggregates {self.aggregates}, events {self.events}; " if self.aggregates else ""
        return f"left out of the family {self.family}: {number}{self.reason}"


class StatedAggregateEvent(Value, frozen=True):
    """An event of the aggregate whose head came last."""

    event: RawEvent


OfRuns = StatedRun | StatedEvent
OfFamilies = StatedAggregate | StatedAggregateEvent | StatedOmission
Item = WidePause | StatedLimit | BlobPart | OfRuns | OfFamilies


def sections_of(version: int) -> Mapping[str, int]:
    """Return the sections of a file of that version."""
    return {name: known for name, known in SECTIONS.items() if version >= SINCE.get(name, 1)}


class StateWriter:
    """Writes a state file piece by piece, in gzip. Sections are written in order, each once."""

    def __init__(self) -> None:
        self._gzip = zlib.compressobj(level=6, wbits=GZIP)
        self._hash = hashlib.sha256()
        self._section = ""
        self._is_first_entry = True
        self._counts: dict[str, int] = {}
        self.sha256 = ""
        """Hash of the content, once it is written."""

    def begin(self, header: StateHeader) -> bytes:
        """Start the file. Called once, first."""
        plain = asdict(header)
        plain |= {"format": FORMAT, "schema_version": VERSION, "positions": dict(header.positions)}
        plain["entity_positions"] = dict(header.entity_positions)
        plain["further_positions"] = {topic: dict(ends) for topic, ends in header.further_positions.items()}
        return self._line(_json(plain)[:-1] + OPENS)

    def pause(self, pause: WidePause) -> bytes:
        return self._entry(PAUSES, {**asdict(pause), "paused": True})  # a field of version 1

    def limit(self, limit: StatedLimit) -> bytes:
        return self._entry(LIMITS, asdict(limit))

    def schema(self, codec: Codec, schema_id: int, value: bytes) -> bytes:
        """Add the schema of a record."""
        _, version = codec.schema_version_of(value)
        schema = released_schema(version.name, version.version)
        named = {"id": schema_id, "name": version.name, "version": version.version, "schema": schema}
        return self._entry(SCHEMAS, named)

    def blob(self, ref: BlobRef, data: bytes) -> Iterator[bytes]:
        """Add a payload."""
        for at in range(0, max(len(data), 1), BLOB_PART_BYTES):
            is_last = at + BLOB_PART_BYTES >= len(data)
            part = b64encode(data[at : at + BLOB_PART_BYTES]).decode()
            yield self._entry(BLOBS, {**ref.to_avro(), "last": is_last, "data": part})

    def run(self, run: StatedRun) -> bytes:
        plain = asdict(run)
        return self._entry(RUNS, {"kind": "run", **plain})

    def event(self, offset: int, value: bytes) -> bytes:
        """Add an event of the run whose head came last."""
        return self._entry(RUNS, {"kind": "event", "offset": offset, "value": b64encode(value).decode()})

    def aggregate(self, aggregate: StatedAggregate) -> bytes:
        return self._entry(ENTITIES, {"kind": "aggregate", **asdict(aggregate)})

    def aggregate_event(self, offset: int, value: bytes) -> bytes:
        """Add an event of the aggregate whose head came last."""
        return self._entry(ENTITIES, {"kind": "event", "offset": offset, "value": b64encode(value).decode()})

    def omission(self, omission: StatedOmission) -> bytes:
        return self._entry(LEFT_OUT, asdict(omission))

    def end(self) -> bytes:
        """End the file. Called once, last; sections without entries are written empty."""
        out = self._write_through("")
        self.sha256 = self._hash.hexdigest()
        last = _json({"counts": self._counts, "sha256": self.sha256})
        return out + self._line(ENDS + last[1:] + b"\n") + self._gzip.flush()

    def rewrite(self, document: Mapping[str, Any]) -> Iterator[bytes]:
        """Return the file of a parsed document; its hash is kept, not computed again. Raises BrokenStateFile."""
        try:
            sections, counts, sha256 = document["sections"], document["counts"], document["sha256"]
            head = {name: value for name, value in document.items() if name not in ("sections", "counts", "sha256")}
            yield self._line(_json(head)[:-1] + OPENS)
            for name, section in sections.items():
                yield self._line(self._opening(name, section["version"]))
                self._is_first_entry = True
                for entry in section["entries"]:
                    yield self._line(self._entries(entry))
                yield self._line(CLOSES)
            last = _json({"counts": counts, "sha256": sha256})
        except (KeyError, TypeError, AttributeError) as error:
            raise BrokenStateFile(f"the document is not that of a state: {type(error).__name__} {error}") from error
        yield self._line(ENDS + last[1:] + b"\n") + self._gzip.flush()

    def _entry(self, section: str, value: Mapping[str, Any]) -> bytes:
        out = self._write_through(section)
        self._counts[section] = self._counts.get(section, 0) + 1
        return out + self._line(self._entries(value))

    def _entries(self, value: Mapping[str, Any]) -> bytes:
        comma = b"" if self._is_first_entry else b","
        self._is_first_entry = False
        return comma + _json(value) + b"\n"

    def _write_through(self, section: str) -> bytes:
        """Close and open sections until that one is open; without one, until all are closed."""
        out = b""
        names = list(SECTIONS)
        while self._section != section or not section:
            if self._section:
                out += self._line(CLOSES)
            at = names.index(self._section) + 1 if self._section else 0
            if at == len(names):
                assert not section, f"the section {section} comes too late"
                return out
            self._section = names[at]
            out += self._line(self._opening(names[at], SECTIONS[names[at]]))
            self._is_first_entry = True
        return out

    def _opening(self, name: str, version: int) -> bytes:
        comma = b"" if name == next(iter(SECTIONS)) else b","
        return comma + _json(name) + b':{"version":' + _json(version) + b',"entries":[\n'

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(ENDS):
            self._hash.update(line)
        return self._gzip.compress(line)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
