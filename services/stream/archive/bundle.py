"""A bundle: one run in one file, with everything needed to read and to prove it without a log.

The file is gzip of UTF-8 lines of JSON, bytes in base64, so that any tool can read it:

    {"kind": "bundle", ...}      format, version, which run of which topic; the runs it continues, oldest first
    {"kind": "schema", ...}      id, name, version, Avro schema; before the first record that was written with it
    {"kind": "event", ...}       an accepted record as stored: offset, time, key, value, headers
    {"kind": "folded", ...}      after the events of a run: seq, digest of the last one, hash of the state
    {"kind": "blob", ...}        a part of a payload that an event refers to
    {"kind": "end", ...}         counts, and the SHA-256 of all lines before this one

A run's events are complete from seq 1; those of a forked run end at the fork point. The file is written and read once
through, a line at a time, so a bundle may be larger than memory. A file without its last line was truncated, and its
reader raises.

Before: services/stream/archive/run_log.py gives the records. After: bundle_replay.py, services/application. Not chosen:
Avro's own file format (one schema a file, and no tool reads it without a library), zstd (not in the standard library),
a zip of files (its directory is at the end, so it cannot be streamed in).
"""

import gzip
import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from msgspec.structs import asdict

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable, peek, released_schema
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Record, Value
from loomlog.services.stream.archive.file_formats import RUN_BUNDLE, wrong_format_hint

FORMAT = RUN_BUNDLE
VERSION = 1
SUFFIX = ".loomlog-run.gz"
ABOUT = (
    "Lines of JSON. `event` lines hold Kafka records of one run: `value` is base64 of a zero byte, a schema id of 4 "
    "bytes big-endian and an Avro body of the `schema` line with that id. `end` holds the SHA-256 of all lines before "
    "it, each with its newline."
)
BLOB_PART_BYTES = 512 * 1024
"""Bytes of a payload in one line, so that no line is much longer than a record."""
LINE_BYTES_MAX = 4 * 1024 * 1024
"""A record is at most 1 MiB, in base64 with its headers less than two; a longer line is not ours."""
HEADER_TEXTS = ("run_id", "tenant", "topic", "exported_at")
HEADER_NUMBERS = ("partition", "reducer_version")
RUN_TEXTS = ("run_id", "role")
RUN_NUMBERS = ("until_seq", "first_offset", "end_offset")
TEXT_MAX = 256
"""Characters of each; they go into the log with every part of an import."""
NUMBER_MAX = 2**62
"""Exclusive limit of offsets: no log has a larger one, and an Avro long holds it."""
GZIP = 31
"""zlib's window bits for gzip framing."""


class BrokenBundle(Exception):
    """The file is not a bundle, was truncated, or was altered. The message names the place."""


class BundledRun(Value, frozen=True, kw_only=True):
    """A run in the bundle. `until_seq` 0: all events; `role` is run, continued or forked."""

    run_id: str
    role: str
    until_seq: int
    first_offset: int
    end_offset: int


class BundleHeader(Value, frozen=True, kw_only=True):
    """Header of a bundle. Its subject is the last of `runs`."""

    run_id: str
    tenant: str
    topic: str
    partition: int
    reducer_version: int
    exported_at: str
    """RFC 3339."""
    runs: tuple[BundledRun, ...]


class BundledEvent(Value, frozen=True, kw_only=True):
    """A record of a run."""

    run_id: str
    event: RawEvent
    timestamp: int
    key: bytes


class FoldedRun(Value, frozen=True, kw_only=True):
    """Result of folding its events when the bundle was written."""

    run_id: str
    seq: int
    tail_digest: str
    state_sha256: str


class BlobPart(Value, frozen=True, kw_only=True):
    """A part of a payload; the parts of one payload follow each other."""

    ref: BlobRef
    data: bytes
    is_last: bool


Item = BundledEvent | FoldedRun | BlobPart


class BundleWriter:
    """Writes a bundle piece by piece. Every method returns the bytes that can be written now, possibly none."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._gzip = zlib.compressobj(level=6, wbits=GZIP)
        self._hash = hashlib.sha256()
        self._schemas: set[int] = set()
        self._events = 0
        self._blobs = 0

    def begin(self, header: BundleHeader) -> bytes:
        """Start the bundle. Called once, first."""
        return self._line(
            {
                "kind": "bundle",
                "format": FORMAT,
                "version": VERSION,
                "about": ABOUT,
                **asdict(header),
                "runs": [asdict(run) for run in header.runs],
            }
        )

    def event(self, run_id: str, record: LogRecord) -> bytes:
        """Add a record of a run, in order."""
        value = record.value or b""
        schema_id, version = self._codec.schema_version_of(value)
        out = b""
        if schema_id not in self._schemas:
            self._schemas.add(schema_id)
            schema = released_schema(version.name, version.version)
            out = self._line(
                {"kind": "schema", "id": schema_id, "name": version.name, "version": version.version, "schema": schema}
            )
        self._events += 1
        return out + self._line(
            {
                "kind": "event",
                "run_id": run_id,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key or b""),
                "value": _text(value),
                "headers": [[name, _text(held)] for name, held in record.headers],
            }
        )

    def folded(self, folded: FoldedRun) -> bytes:
        """Add the result of the fold, after the last event of a run."""
        return self._line({"kind": "folded", **asdict(folded)})

    def blob(self, ref: BlobRef, data: bytes) -> Iterator[bytes]:
        """Add a payload."""
        self._blobs += 1
        for at in range(0, max(len(data), 1), BLOB_PART_BYTES):
            is_last = at + BLOB_PART_BYTES >= len(data)
            part = _text(data[at : at + BLOB_PART_BYTES])
            yield self._line({"kind": "blob", **ref.to_avro(), "last": is_last, "data": part})

    def end(self) -> bytes:
        """End the bundle. Called once, last."""
        text = self._hash.hexdigest()
        return (
            self._line({"kind": "end", "events": self._events, "blobs": self._blobs, "sha256": text})
            + self._gzip.flush()
        )

    def _line(self, value: Mapping[str, Any]) -> bytes:
        line = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        self._hash.update(line)
        return self._gzip.compress(line)


class BundleReader:
    """Reads a bundle once through. `codec` can decode its records as soon as their schemas were read.

    The constructor reads the first line; iterating gives the items and checks everything. Raises BrokenBundle.
    """

    def __init__(self, file: IO[bytes], *, bytes_max: int = 0) -> None:
        """`bytes_max`: limit of the bytes of all lines together, for untrusted files; 0 for no limit."""
        self.codec = Codec.for_foreign_records()
        self.sha256 = ""
        """Hash of the content, once it was read to its end."""
        self._lines = gzip.GzipFile(fileobj=file, mode="rb")
        self._hash = hashlib.sha256()
        self._left = bytes_max or None
        self._number = 0
        self._seen = {"event": 0, "blob": 0}
        self.header = _header(self._next())

    def __iter__(self) -> Iterator[Item]:
        while (line := self._next())["kind"] != "end":
            try:
                item = self._item(line)
            except (KeyError, TypeError, ValueError, NotBase64, Undecodable) as error:
                raise BrokenBundle(f"line {self._number}: {type(error).__name__}: {error}") from error
            if item is not None:
                yield item
        self._check_end(line)

    def _item(self, line: Mapping[str, Any]) -> Item | None:
        match line["kind"]:
            case "schema":
                self.codec.add_schema(line["id"], line["name"], line["version"], line["schema"])
                return None
            case "event":
                self._seen["event"] += 1
                value = b64decode(line["value"], validate=True)
                header = peek(value)
                raw = RawEvent(
                    _integer(line, "offset"), header.schema_id, header.term, header.seq, header.aggregate, value
                )
                return BundledEvent(
                    run_id=line["run_id"],
                    event=raw,
                    timestamp=_integer(line, "timestamp"),
                    key=b64decode(line["key"], validate=True),
                )
            case "folded":
                return FoldedRun(**{name: line[name] for name in FoldedRun.__struct_fields__})
            case "blob":
                self._seen["blob"] += bool(line["last"])
                return BlobPart(
                    ref=BlobRef.from_avro(line), data=b64decode(line["data"], validate=True), is_last=line["last"]
                )
            case other:
                raise BrokenBundle(f"line {self._number} is of the kind {other!r}, which this version does not know")

    def _check_end(self, line: Mapping[str, Any]) -> None:
        counted = {"event": line.get("events"), "blob": line.get("blobs")}
        if counted != self._seen:
            raise BrokenBundle(f"the last line counts {counted}, the file has {self._seen}")
        if line.get("sha256") != self.sha256:
            raise BrokenBundle(f"the lines hash to {self.sha256}, the last one says {line.get('sha256')}: altered")
        try:
            more = self._lines.read(1)
        except (OSError, EOFError, zlib.error) as error:
            raise BrokenBundle(f"after the last line: {error}") from error
        if more:
            raise BrokenBundle("there is something after the last line")

    def _next(self) -> Mapping[str, Any]:
        self._number += 1
        try:
            line = self._lines.readline(LINE_BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BrokenBundle(f"line {self._number}: no bundle, or cut short: {error}") from error
        if not line.endswith(b"\n"):
            why = (
                f"is longer than {LINE_BYTES_MAX} bytes"
                if len(line) > LINE_BYTES_MAX
                else "is missing: the file was cut short"
            )
            raise BrokenBundle(f"line {self._number} {why}")
        if self._left is not None:
            self._left -= len(line)
            if self._left < 0:
                raise BrokenBundle("the bundle is larger than what is taken here")
        if self._number == 1 and (other := wrong_format_hint(line, FORMAT)):
            raise BrokenBundle(f"it is {other}")
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrokenBundle(f"line {self._number} is not JSON: {error}") from error
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise BrokenBundle(f"line {self._number} is not a line of a bundle")
        if entry["kind"] == "end":
            self.sha256 = self._hash.hexdigest()
        self._hash.update(line)
        return entry


def blob_refs(value: Any) -> Iterator[BlobRef]:
    """Return every payload reference of a record."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, Record):
        for name in value.__struct_fields__:
            yield from blob_refs(getattr(value, name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from blob_refs(item)


def _header(line: Mapping[str, Any]) -> BundleHeader:
    if line.get("format") != FORMAT:
        raise BrokenBundle("the first line does not say that this is a run of loomlog")
    if line.get("version") != VERSION:
        raise BrokenBundle(f"the bundle has version {line.get('version')}, this loomlog reads {VERSION}")
    try:
        plain = _names(line, HEADER_TEXTS, HEADER_NUMBERS)
        plain["runs"] = tuple(BundledRun(**_names(run, RUN_TEXTS, RUN_NUMBERS)) for run in line["runs"])
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenBundle(f"the first line: {type(error).__name__}: {error}") from error
    header = BundleHeader(**plain)
    if not header.runs or header.runs[-1].run_id != header.run_id:
        raise BrokenBundle(f"the bundle is about {header.run_id!r}, but that is not the last of its runs")
    return header


def _names(line: Mapping[str, Any], texts: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    """Return the texts and numbers of those names. Raises ValueError, KeyError."""
    return {**{name: _string(line, name) for name in texts}, **{name: _integer(line, name) for name in numbers}}


def _string(line: Mapping[str, Any], name: str) -> str:
    """Return a name or a time of a line. Raises ValueError, KeyError."""
    value = line[name]
    if not isinstance(value, str) or len(value) > TEXT_MAX or not value.isprintable():
        raise ValueError(f"{name} is {str(value)[:80]!r}: expected a text of at most {TEXT_MAX} printable characters")
    return value


def _integer(line: Mapping[str, Any], name: str) -> int:
    """Return a number of a line. Raises ValueError, KeyError."""
    value = line[name]
    if type(value) is not int or abs(value) > NUMBER_MAX:
        raise ValueError(f"{name} is {str(value)[:80]!r}: expected a whole number of at most {NUMBER_MAX}")
    return value


def _text(value: bytes) -> str:
    return b64encode(value).decode()
