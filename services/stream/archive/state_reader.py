"""Reader of a state file, gzip or plain: once through, a line at a time, with checks.

    check_digest    the lines have the hash that the last one names; their content is not read
    StateReader     the items, in order: pauses, payloads, runs with their events

Every problem is a BrokenStateFile that names the place. Before: state_file.py. After: state_validation.py,
transfer/restore.py.
"""

import gzip
import hashlib
import json
import zlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from typing import IO, Any, TypeVar

from msgspec import convert

from loomlog.schemas.codec import Codec, Undecodable, peek
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Value
from loomlog.services.core.pauses import WidePause
from loomlog.services.stream.archive.bundle import LINE_BYTES_MAX, BlobPart
from loomlog.services.stream.archive.file_formats import wrong_format_hint
from loomlog.services.stream.archive.state_file import (
    BLOBS,
    CLOSES,
    ENDS,
    ENTITIES,
    FORMAT,
    LEFT_OUT,
    LIMITS,
    OPENS,
    PAUSES,
    SCHEMAS,
    SECTIONS,
    VERSION,
    BrokenStateFile,
    Item,
    StatedAggregate,
    StatedAggregateEvent,
    StatedEvent,
    StatedLimit,
    StatedOmission,
    StatedRun,
    StateHeader,
    UnknownStateSection,
    UnsupportedStateFile,
    sections_of,
)

RecordT = TypeVar("RecordT", bound=Value)
GZIP_MAGIC = b"\x1f\x8b"
OPTIONAL_IN_HEADER = frozenset({"entity_topic", "entity_positions", "further_positions"})
"""Fields that came with the section of entities, and with further families in it."""


class StateReader:
    """Reads a state file once through. The constructor reads the first line; iterating gives the items and checks the
    rest.

    Raises BrokenStateFile. `codec` can decode the events as soon as their schemas were read.
    """

    def __init__(self, file: IO[bytes], *, bytes_max: int = 0) -> None:
        """`bytes_max`: limit of the bytes of all lines together, for untrusted files; 0 for no limit."""
        self.codec = Codec.for_foreign_records()
        self.sha256 = ""
        """Hash of the content, once it was read to its end."""
        self._lines: IO[bytes] = decompressed(file)
        self._hash = hashlib.sha256()
        self._left = bytes_max or None
        self._number = 0
        self._counts: dict[str, int] = {}
        self.header, self._version = _header(self._next())

    def __iter__(self) -> Iterator[Item]:
        for name, known in sections_of(self._version).items():
            self._check_section(self._next(), name, known)
            is_first = True
            while (line := self._next()) != CLOSES:
                if not is_first:
                    if not line.startswith(b","):
                        raise BrokenStateFile(f"line {self._number}: expected a comma and an entry of {name}")
                    line = line[1:]
                is_first = False
                self._counts[name] = self._counts.get(name, 0) + 1
                try:
                    item = self._item(name, self._object(line))
                except (KeyError, TypeError, ValueError, NotBase64, Undecodable) as error:
                    raise BrokenStateFile(f"line {self._number}: {type(error).__name__}: {error}") from error
                if item is not None:
                    yield item
        self._check_end(self._next(may_end=True))

    def skip(self) -> bool:
        """Skip a line. True for the last one, whose hash and place are checked."""
        line = self._next(may_end=True)
        if not line.startswith(ENDS):
            return False
        self._check_digest(line)
        return True

    def _item(self, section: str, entry: Mapping[str, Any]) -> Item | None:
        if section == PAUSES:
            return _record(WidePause, entry)
        if section == LIMITS:
            return _record(StatedLimit, entry)
        if section == SCHEMAS:
            self.codec.add_schema(entry["id"], entry["name"], entry["version"], entry["schema"])
            return None
        if section == BLOBS:
            data = b64decode(entry["data"], validate=True)
            return BlobPart(ref=BlobRef.from_avro(entry), data=data, is_last=entry["last"])
        if section == LEFT_OUT:
            return _record(StatedOmission, entry)
        if section == ENTITIES and entry["kind"] == "aggregate":
            return _record(StatedAggregate, entry)
        if section != ENTITIES and entry["kind"] == "run":
            return _record(StatedRun, entry)
        value = b64decode(entry["value"], validate=True)
        header = peek(value)
        event = RawEvent(
            convert(entry["offset"], int), header.schema_id, header.term, header.seq, header.aggregate, value
        )
        return StatedAggregateEvent(event) if section == ENTITIES else StatedEvent(event)

    def _check_section(self, line: bytes, name: str, known: int) -> None:
        opening = self._object(b"{" + line.strip().removeprefix(b",") + b"]}}")
        text = next(iter(opening), "")
        if text not in SECTIONS:
            raise UnknownStateSection(f"line {self._number}: the section {text[:80]!r} is not known to this loomlog")
        if text != name:
            raise BrokenStateFile(f"line {self._number}: the section {text}, expected {name}")
        _check_version(f"the section {name}", opening[name].get("version"), known)

    def _check_end(self, line: bytes) -> None:
        if not line.startswith(ENDS):
            raise BrokenStateFile(f"line {self._number}: expected the end of the document")
        last = self._check_digest(line)
        if last.get("counts") != self._counts:
            raise BrokenStateFile(f"the last line counts {last.get('counts')}, the file has {self._counts}")

    def _check_digest(self, line: bytes) -> Mapping[str, Any]:
        """Check the last line, which nothing follows."""
        last = self._object(b"{" + line.removeprefix(ENDS))
        if last.get("sha256") != self.sha256:
            raise BrokenStateFile(f"the lines hash to {self.sha256}, the last one says {last.get('sha256')}: altered")
        try:
            more = self._lines.read(1)
        except (OSError, EOFError, zlib.error) as error:
            raise BrokenStateFile(f"after the last line: {error}") from error
        if more:
            raise BrokenStateFile("there is something after the last line")
        return last

    def _object(self, line: bytes) -> Mapping[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrokenStateFile(f"line {self._number} is not JSON: {error}") from error
        if not isinstance(entry, dict):
            raise BrokenStateFile(f"line {self._number} is not an entry of a state file")
        return entry

    def _next(self, *, may_end: bool = False) -> bytes:
        self._number += 1
        try:
            line = self._lines.readline(LINE_BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BrokenStateFile(f"line {self._number}: no state file, or cut short: {error}") from error
        if not line.endswith(b"\n"):
            why = (
                f"is longer than {LINE_BYTES_MAX} bytes"
                if len(line) > LINE_BYTES_MAX
                else "is missing: the file was cut short"
            )
            raise BrokenStateFile(f"line {self._number} {why}")
        if self._left is not None:
            self._left -= len(line)
            if self._left < 0:
                raise BrokenStateFile("the file is larger than what is taken here")
        if may_end and line.startswith(ENDS):
            self.sha256 = self._hash.hexdigest()
        else:
            self._hash.update(line)
        return line


def check_digest(file: IO[bytes], *, bytes_max: int = 0) -> None:
    """Hash the lines without reading their content. Raises BrokenStateFile if the last line names another hash.

    Anything wrong that is found in them afterwards was written that way, and is not damage.
    """
    reader = StateReader(file, bytes_max=bytes_max)
    while not reader.skip():
        pass


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return the document of a file with or without gzip; `file` is read from its beginning."""
    file.seek(0)
    is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    return gzip.GzipFile(fileobj=file, mode="rb") if is_gzip else file  # type: ignore[return-value]  # reads alike


def _header(line: bytes) -> tuple[StateHeader, int]:
    """Parse the first line: the header, and its version."""
    if other := wrong_format_hint(line, FORMAT):
        raise BrokenStateFile(f"it is {other}")
    try:
        header_json = json.loads(line.removesuffix(OPENS) + b"}")
    except (ValueError, RecursionError) as error:
        raise BrokenStateFile("the first line does not say that this is a state of loomlog") from error
    if not line.endswith(OPENS) or not isinstance(header_json, dict) or header_json.get("format") != FORMAT:
        raise BrokenStateFile("the first line does not say that this is a state of loomlog")
    _check_version("the file", header_json.get("schema_version"), VERSION)
    try:
        names = [n for n in StateHeader.__struct_fields__ if n in header_json or n not in OPTIONAL_IN_HEADER]
        header = StateHeader(**{name: header_json[name] for name in names})
    except KeyError as error:
        raise BrokenStateFile(f"the first line lacks {error}") from error
    return header, header_json["schema_version"]


def _check_version(what: str, version: Any, known: int) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UnknownStateSection(f"{what} has the version {version!r}, which never was")
    if version > known:
        raise UnsupportedStateFile(f"{what} has version {version}, this loomlog reads up to {known}: use a newer one")


def _record(record: type[RecordT], entry: Mapping[str, Any]) -> RecordT:
    """Return the record of an entry, which may have further fields. Raises ValidationError, a ValueError."""
    return convert({name: entry[name] for name in record.__struct_fields__ if name in entry}, record)
