"""The fields of a command as JSON: their schema, a strict parser, and the JSON in which states and replies are shown.

Everything follows from the Avro schema of the record, so a transport describes and checks a command without knowing it.
The `envelope` is never a field: it is made by the transport's use case. Types and their JSON:

    int, long         a whole number within 32 or 64 bits; 3.0 is one, as in JSON Schema
    double            a finite number
    bytes, fixed      text in base64
    array, map        a list; an object
    record            an object with its fields, no others
    null or another   null, or the other

Text never contains NUL or half a surrogate pair, because no store takes them.

Before: services/core/entity_operations.py, services/families/entity_handlers.py. After: the record, or the JSON.
"""

import base64
import binascii
import math
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.record_schema import record_schema
from loomlog.schemas.records import Record

RecordT = TypeVar("RecordT", bound=Record)

ENVELOPE = "envelope"
PROBLEMS_MAX = 5
"""Most problems in one message; further ones show once these are solved."""
NAME_CHARACTERS_MAX = 60
"""Characters of a sender's own field name that a message repeats."""
INT_BITS: Mapping[str, int] = {"int": 32, "long": 64}
FLOAT_EXACT_MAX = 2**53
"""Up to here every integer is a float of its own."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""Integers outside are shown as text: most readers of JSON cannot hold them."""


def fields_schema(record: type[Record]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of the fields of a command."""
    return _object_schema(_fields_of(record))


def field_names(record: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields of a command, in the order of the record."""
    return tuple(field["name"] for field in _fields_of(record))


def parse_fields(record: type[RecordT], fields: Any, envelope: CommandEnvelope) -> RecordT:
    """Return the command with these fields, as JSON has them. Raises ValueError."""
    problems: list[str] = []
    values = _parse_object(_fields_of(record), fields, "", problems)
    if problems:
        shown = list(dict.fromkeys(problems))
        more = len(shown) - PROBLEMS_MAX
        raise ValueError("; ".join(shown[:PROBLEMS_MAX]) + (f"; and {more} more" if more > 0 else ""))
    return record.from_avro({**values, ENVELOPE: envelope.to_avro()})


def example_fields(record: type[Record]) -> dict[str, Any]:
    """Return fields that the command accepts: the required ones, or all when none is."""
    fields = _fields_of(record)
    required = [field for field in fields if "default" not in field]
    return {field["name"]: _example(field["type"]) for field in required or fields}


def to_json(value: Any) -> Any:
    """Return a state, a reply or a part of them as plain JSON: no class names, bytes in base64, NaN as null."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return to_json(value.value)
        case int():
            return value if INTEGER_MIN <= value <= INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) else None
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Struct():
            return {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            return {str(name): to_json(item) for name, item in value.items()}
        case set() | frozenset():
            return [to_json(item) for item in sorted(value)]
        case list() | tuple():
            return [to_json(item) for item in value]
        case _:
            raise TypeError(f"a {type(value).__name__} has no JSON: states are trees of Values and plain values")


# --- the schema ------------------------------------------------------------------------------------------------------


def _fields_of(record: type[Record]) -> tuple[Mapping[str, Any], ...]:
    return _fields_named(record.SCHEMA)


@cache
def _fields_named(name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the Avro fields of a record without its envelope, every type written out."""
    resolved = _resolve(record_schema(name), {})
    return tuple(field for field in resolved["fields"] if field["name"] != ENVELOPE)


def _resolve(kind: Any, names: dict[str, Any]) -> Any:
    """Return a type with names replaced by what they name; `names` has those seen so far."""
    match kind:
        case str():
            return names.get(kind, kind)
        case list():
            return [_resolve(part, names) for part in kind]
        case {"type": "record", "fields": fields, **rest}:
            made = {
                **rest,
                "type": "record",
                "fields": [{**one, "type": _resolve(one["type"], names)} for one in fields],
            }
            names[f"{kind['namespace']}.{kind['name']}"] = made
            return made
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _resolve(items, names)}
        case {"type": "map", "values": values}:
            return {"type": "map", "values": _resolve(values, names)}
        case {"type": str() as plain} if plain != "fixed":
            return _resolve(plain, names)
        case _:
            return kind


def _object_schema(fields: Any) -> dict[str, Any]:
    properties = {}
    for field in fields:
        schema = _type_schema(field["type"])
        if field.get("doc"):
            schema["description"] = field["doc"]
        if "default" in field and field["default"] not in (None, {}):
            schema["default"] = field["default"]
        properties[field["name"]] = schema
    required = [field["name"] for field in fields if "default" not in field]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _type_schema(kind: Any) -> dict[str, Any]:
    match kind:
        case "string":
            return {"type": "string"}
        case "boolean":
            return {"type": "boolean"}
        case "double" | "float":
            return {"type": "number"}
        case "int" | "long":
            low, high = _bounds(kind)
            return {"type": "integer", "minimum": low, "maximum": high}
        case "bytes" | {"type": "fixed"}:
            return {"type": "string", "contentEncoding": "base64"}
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _type_schema(items)}
        case {"type": "map", "values": values}:
            return {"type": "object", "additionalProperties": _type_schema(values)}
        case {"type": "record", "fields": fields}:
            return _object_schema(fields)
        case list():
            return {"anyOf": [{"type": "null"} if part == "null" else _type_schema(part) for part in kind]}
        case _:
            raise TypeError(f"a field of the type {kind!r} has no JSON schema")


def _bounds(kind: str) -> tuple[int, int]:
    half = 1 << (INT_BITS[kind] - 1)
    return -half, half - 1


def _example(kind: Any) -> Any:
    match kind:
        case "string":
            return "text"
        case "boolean":
            return True
        case "double" | "float":
            return 1.5
        case "int" | "long":
            return 1
        case "bytes":
            return "AAE="
        case {"type": "fixed", "size": size}:
            return base64.b64encode(bytes(size)).decode()
        case {"type": "array", "items": items}:
            return [_example(items)]
        case {"type": "map", "values": values}:
            return {"key": _example(values)}
        case {"type": "record", "fields": fields}:
            return {field["name"]: _example(field["type"]) for field in fields if "default" not in field}
        case _:
            return _example(next(part for part in kind if part != "null"))


# --- the parser ------------------------------------------------------------------------------------------------------


def _parse_object(fields: Any, value: Any, path: str, problems: list[str]) -> dict[str, Any]:
    """Return the values of a record in the form of its Avro schema; what is wrong is added to `problems`."""
    if not isinstance(value, Mapping):
        problems.append(f"{path or 'the fields'} must be an object, not {_kind_name(value)}")
        return {}
    known = {field["name"]: field for field in fields}
    for name in value:
        if name not in known:
            problems.append(_unknown_field(str(name), known, path))
    values = {}
    for name, field in known.items():
        place = f"{path}.{name}" if path else name
        if name in value:
            values[name] = _parse(field["type"], value[name], place, problems)
        elif "default" in field:
            values[name] = _default(field)
        else:
            problems.append(f"{place} is required: {_expectation(field['type'])}")
    return values


def _parse(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    match kind:
        case "string" if isinstance(value, str):
            if "\0" in value or not _is_encodable(value):
                problems.append(f"{path} must be text without NUL and without half a surrogate pair")
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long" if (number := _whole_number(value)) is not None:
            low, high = _bounds(kind)
            if low <= number <= high:
                return number
            problems.append(f"{path} is out of range: expected {_expectation(kind)}")
            return None
        case "double" | "float" if (real := _finite_number(value)) is not None:
            return real
        case "bytes" | {"type": "fixed"} if isinstance(value, str):
            try:
                data = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                data = None
            if data is not None and (kind == "bytes" or len(data) == kind["size"]):
                return data
        case {"type": "array", "items": items} if isinstance(value, list | tuple):
            return [_parse(items, item, f"{path}[{number}]", problems) for number, item in enumerate(value)]
        case {"type": "map", "values": values} if isinstance(value, Mapping):
            for name in value:
                _parse("string", name, f"a key of {path}", problems)
            return {name: _parse(values, item, f"{path}.{_short(str(name))}", problems) for name, item in value.items()}
        case {"type": "record", "fields": fields}:
            return _parse_object(fields, value, path, problems)
        case list():
            if value is None and "null" in kind:
                return None
            (other,) = [part for part in kind if part != "null"]
            return _parse(other, value, path, problems)
    problems.append(f"{path} must be {_expectation(kind)}, not {_kind_name(value)}")
    return None


def _default(field: Mapping[str, Any]) -> Any:
    """Return the default of a field in the form of the Avro schema."""
    kind, value = field["type"], field["default"]
    kind = next((part for part in kind if part != "null"), "null") if isinstance(kind, list) else kind
    if value is None:
        return None
    if isinstance(value, str) and kind in ("bytes",):
        return value.encode("latin-1")  # Avro writes the bytes of a default as characters
    if isinstance(kind, Mapping) and kind["type"] == "record":
        return _parse_object(kind["fields"], value, "", [])
    return value


def _whole_number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        # A parser of JSON reads a number beyond 64 bits as the nearest float, which is another number.
        return int(value) if value.is_integer() and abs(value) <= FLOAT_EXACT_MAX else None
    return value if isinstance(value, int) else None


def _finite_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _expectation(kind: Any) -> str:
    match kind:
        case "string":
            return "text"
        case "boolean":
            return "true or false"
        case "double" | "float":
            return "a finite number"
        case "int" | "long":
            low, high = _bounds(kind)
            return f"a whole number from {low} to {high}"
        case "bytes":
            return "text in base64"
        case {"type": "fixed", "size": size}:
            return f"{size} bytes in base64"
        case {"type": "array"}:
            return "a list"
        case list():
            return f"{_expectation(next(part for part in kind if part != 'null'))}, or null"
        case _:
            return "an object"


def _kind_name(value: Any) -> str:
    """Describe a value without repeating it, because it may be secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "this text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def _unknown_field(name: str, known: Mapping[str, Any], path: str) -> str:
    place = f" in {path}" if path else ""
    near = get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
    return f'unknown field "{_short(name)}"{place}; {hint}'


def _short(name: str) -> str:
    return name.encode("utf-8", "replace").decode()[:NAME_CHARACTERS_MAX]
