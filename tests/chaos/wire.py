"""Bytes to fields for the checker: fastavro and the released schemas, nothing else of loomlog.

A second reader of the wire on purpose. If the codec of the services writes something that its own reader understands
and nobody else does, the checker says so.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader

SCHEMAS = Path(__file__).parents[2] / "schemas"
FRAME_BYTES = 5


class Unreadable(Exception):
    """The bytes are not a record that the released schemas describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
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
