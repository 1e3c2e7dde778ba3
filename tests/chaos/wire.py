"""Bytes to fields for the checker: the released schemas and readers of its own, nothing else of loomlog.

A second reader of the wire on purpose. If the codec of the services writes something that its own reader understands
and nobody else does, the checker says so. Most records are read by reading.py; what that does not understand is read,
or refused with a reason, by fastavro.
"""

import json
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_reader

from tests.chaos.reading import NOT_THIS_WAY, Read, compiled

SCHEMAS = Path(__file__).parents[2] / "schemas"
FRAME_BYTES = 5


class Unreadable(Exception):
    """The bytes are not a record that the released schemas describe."""


class Fields(NamedTuple):
    """A decoded record: `name` is its full name."""

    name: str
    values: Mapping[str, Any]


def decode(value: bytes | None) -> Fields:
    """The record in the bytes. Raises Unreadable."""
    if value is None:
        raise Unreadable("there is no value")
    if len(value) < FRAME_BYTES or value[0] != 0:
        raise Unreadable(f"{len(value)} bytes beginning {value[:8]!r} have no frame")
    schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
    names = _names()
    if schema_id not in names:
        raise Unreadable(f"schema id {schema_id} is not in ids.json")
    name, version = names[schema_id]
    read = _reader(name, version)
    if read is not None:
        try:
            values, end = read(value, FRAME_BYTES)
        except NOT_THIS_WAY:
            pass  # fastavro says what is wrong, if anything is
        else:
            if end == len(value):
                return Fields(name=name, values=values)
    return read_slowly(value, name, version)


def read_slowly(value: bytes, name: str, version: int) -> Fields:
    """The same by fastavro. Raises Unreadable."""
    body = BytesIO(value[FRAME_BYTES:])
    try:
        values = schemaless_reader(body, _schema(name, version), None)
    except (ValueError, IndexError, EOFError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{name}: {type(error).__name__}: {error}") from error
    if body.read(1):
        raise Unreadable(f"{name}: bytes are left after the body")
    assert isinstance(values, dict)
    return Fields(name=name, values=values)


@cache
def _names() -> dict[int, tuple[str, int]]:
    lock = json.loads((SCHEMAS / "ids.json").read_text())
    return {entry["id"]: (name, entry["version"]) for name, versions in lock.items() for entry in versions}


@cache
def _schema(name: str, version: int) -> Any:
    return parse_schema(json.loads((SCHEMAS / "released" / name / f"{version}.avsc").read_text()), named_schemas={})


@cache
def _reader(name: str, version: int) -> Read | None:
    return compiled(_schema(name, version))
