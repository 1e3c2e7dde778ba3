"""Fast decoder from bytes to objects in one pass, for the newest schema versions; the codec tries it first.

For a schema and its generated class a function is generated and compiled, as dataclasses does for `__init__`: it reads
the bytes field by field and builds the records directly, without the dict that fastavro returns and from_avro takes
apart. Three to four times as fast (measured on A3x2: 3.4 instead of 12.0 microseconds an event).

It is strict and signals only "unsupported", by an exception: an unusual but legal encoding (blocks with a byte count,
numbers above 62 bits) and a broken record are both left to fastavro, which reads the one and explains the other. So
this decoder may refuse any input, but must not accept input that fastavro would not, nor read it differently; tests
check both with mutated bytes.

Before: the codec, for the newest version of a record. After: objects of the generated classes.

Not chosen: fastavro alone (half its time is one Python call for each byte of a number), a C extension of our own,
records built with positional arguments (saves a fifth of the time for those with 18 fields and more, nothing for the
others; then every caller could do so).
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args, get_type_hints

from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Record

Json = Any
FastDecoder = Callable[[bytes, int], tuple[Envelope | None, Any]]
"""Takes the bytes and the start of the body; returns the envelope of an event, else None, and the record."""
ENVELOPE = "envelope"
NUMBER_BYTES_MAX = 9
"""Maximum bytes of a number; one of ten bytes may exceed 64 bits."""


class UnsupportedEncoding(Exception):
    """Raised for an encoding that this decoder does not support."""


FALLBACK_ERRORS = (UnsupportedEncoding, IndexError, UnicodeDecodeError, struct.error, OverflowError)
"""All exceptions of a fast decoder; each means only that the slow path must be taken."""


def compile_decoder(schema: Json, record: type[Any], *, has_envelope: bool) -> FastDecoder | None:
    """Return a schema's decoder into its class; None when they do not match or the schema has an unsupported type.

    `schema` is plain, self-contained JSON. `has_envelope`: the first field is the envelope and not part of the class.
    """
    text = _DecoderSource()
    try:
        body = schema
        before = "None"
        if has_envelope:
            first, *rest = schema["fields"]
            if first["name"] != ENVELOPE:
                return None
            before = text.emit_value(first["type"], Envelope, schema["namespace"], "    ")
            body = {**schema, "fields": rest}
        made = text.emit_value(body, record, schema["namespace"], "    ")
    except UnsupportedEncoding:
        return None
    lines = ["def decode(v, at):", *text.lines, "    if at != len(v):", "        raise Unusual"]
    lines.append(f"    return {before}, {made}")
    exec("\n".join(lines), text.symbols)  # noqa: S102  of our own schemas, never of what was read
    decode: FastDecoder = text.symbols["decode"]
    return decode


def _read_long(value: bytes, at: int, byte: int) -> tuple[int, int]:
    """Return a long of several bytes, whose first byte was read already, and the position after it."""
    result = byte & 0x7F
    shift = 7
    while True:
        byte = value[at]
        at += 1
        if byte < 0x80:
            result |= byte << shift
            return (result >> 1) ^ -(result & 1), at
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift >= 7 * NUMBER_BYTES_MAX:
            raise UnsupportedEncoding


def _read_size(value: bytes, at: int, byte: int) -> tuple[int, int]:
    """Return a length or a count, which may also be a single byte, and the position after it."""
    size, at = _read_long(value, at, byte) if byte > 0x7F else (ONE_BYTE_NUMBERS[byte], at)
    if size < 0:
        raise UnsupportedEncoding
    return size, at


ONE_BYTE_NUMBERS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""Decoded numbers by their single byte."""


@dataclass(slots=True, kw_only=True)
class _DecoderSource:
    """Source text of a decoder: `v` is the bytes, `at` the position, `b` the current byte, x1, x2 ... the values.

    In an added line, `$` is replaced by the variable of the value.
    """

    lines: list[str] = field(default_factory=list)
    symbols: dict[str, Any] = field(
        default_factory=lambda: {
            "Unusual": UnsupportedEncoding,
            "SMALL": ONE_BYTE_NUMBERS,
            "number": _read_long,
            "size": _read_size,
            "double": struct.Struct("<d").unpack_from,
        }
    )
    named_types: dict[str, Json] = field(default_factory=dict)
    variable_count: int = 0

    def emit_value(self, schema: Json, hint: Any, namespace: str, indent: str) -> str:
        """Add the lines that read a value; return the name of its variable."""
        into = self._new_variable()
        if isinstance(schema, list):
            self._emit_optional(into, schema, hint, namespace, indent)
            return into
        if isinstance(schema, str) and schema not in PRIMITIVE_READERS:
            schema = self._resolve_type(schema, namespace)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "logicalType" in schema:
            raise UnsupportedEncoding
        if kind in PRIMITIVE_READERS:
            self._emit(indent, PRIMITIVE_READERS[kind], into)
        elif kind == "fixed":
            self._add_type(schema, namespace)
            self._emit(indent, f"$ = v[at:at + {schema['size']}]\nat += {schema['size']}", into)
        elif kind == "record":
            self._emit_record(into, schema, hint, indent)
        elif kind in ("array", "map"):
            self._emit_blocks(into, schema, hint, namespace, indent)
        else:
            raise UnsupportedEncoding
        return into

    def _emit_record(self, target: str, schema: Json, hint: Any, indent: str) -> None:
        if not isinstance(hint, type) or not issubclass(hint, Record):
            raise UnsupportedEncoding
        if {part["name"] for part in schema["fields"]} != set(hint.__struct_fields__):
            raise UnsupportedEncoding
        hints = get_type_hints(hint)
        namespace = schema["namespace"]
        values = [
            (part["name"], self.emit_value(part["type"], hints[part["name"]], namespace, indent))
            for part in schema["fields"]
        ]
        self._add_type(schema, namespace)
        self.symbols[f"Record_{target}"] = hint
        arguments = ", ".join(f"{name}={value}" for name, value in values)
        self._emit(indent, f"$ = Record_{target}({arguments})", target)

    def _emit_optional(self, target: str, schema: Json, hint: Any, namespace: str, indent: str) -> None:
        if len(schema) != 2 or schema[0] != "null":
            raise UnsupportedEncoding
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        self._emit(indent, "b = v[at]\nat += 1\nif b == 0:\n    $ = None\nelif b == 2:", target)
        text = self.emit_value(schema[1], inner, namespace, indent + "    ")
        self._emit(indent, f"    $ = {text}\nelse:\n    raise Unusual", target)

    def _emit_blocks(self, target: str, schema: Json, hint: Any, namespace: str, indent: str) -> None:
        """Add the lines for an array or a map: counted blocks of items, ended by an empty one. Usually there are no
        items.
        """
        is_map = schema["type"] == "map"
        count = self._new_variable()
        self._emit(indent, "$ = {}" if is_map else "$ = []", target)
        self._emit(indent, f"b = v[at]\nat += 1\nwhile b:\n    {count}, at = size(v, at, b)", target)
        self._emit(indent, f"    for _ in range({count}):", target)
        inside = indent + "        "
        if is_map:
            key = self.emit_value("string", str, namespace, inside)
            self._emit(
                inside, f"$[{key}] = {self.emit_value(schema['values'], get_args(hint)[1], namespace, inside)}", target
            )
        else:
            self._emit(
                inside, f"$.append({self.emit_value(schema['items'], get_args(hint)[0], namespace, inside)})", target
            )
        self._emit(indent, "    b = v[at]\n    at += 1", target)
        if not is_map:
            self._emit(indent, "$ = tuple($)", target)

    def _resolve_type(self, name: str, namespace: str) -> Json:
        json = self.named_types.get(name if "." in name else f"{namespace}.{name}")
        if json is None:
            raise UnsupportedEncoding
        return json

    def _add_type(self, schema: Mapping[str, Any], namespace: str) -> None:
        self.named_types[f"{schema.get('namespace', namespace)}.{schema['name']}"] = schema

    def _new_variable(self) -> str:
        self.variable_count += 1
        return f"x{self.variable_count}"

    def _emit(self, indent: str, text: str, target: str) -> None:
        self.lines += [indent + line.replace("$", target) for line in text.split("\n")]


_LONG = """\
b = v[at]
at += 1
if b < 128:
    $ = SMALL[b]
else:
    $, at = number(v, at, b)"""
_BYTES = """\
b = v[at]
at += 1
if b == 0:
    $ = EMPTY
else:
    if b & 129:
        b, at = size(v, at, b)
    else:
        b >>= 1
    $ = v[at:at + b]DECODED
    at += b"""
_BOOLEAN = """\
b = v[at]
at += 1
if b > 1:
    raise Unusual
$ = b == 1"""
PRIMITIVE_READERS: Mapping[str, str] = {
    "long": _LONG,
    "int": _LONG,
    "boolean": _BOOLEAN,
    "double": "($,) = double(v, at)\nat += 8",
    "bytes": _BYTES.replace("EMPTY", 'b""').replace("DECODED", ""),
    "string": _BYTES.replace("EMPTY", '""').replace("DECODED", ".decode()"),
}
"""Lines that read a value of a primitive type into $. Truncated text is detected at the end: `at` is past it then."""
