"""Hypothesis strategies for every record of the language, made from its type hints."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from loomlog.schemas.generated import (
    budget_commands,
    budget_events,
    run_commands,
    run_events,
    stream_events,
    stream_records,
)
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Record

EVENTS: tuple[type[Any], ...] = (*run_events.RECORDS, *stream_events.RECORDS, *budget_events.RECORDS)
PLAIN: tuple[type[Any], ...] = (*run_commands.RECORDS, *stream_records.RECORDS, *budget_commands.RECORDS)

AVRO = Path(__file__).parents[2] / "schemas" / "avro"
INTS = st.integers(min_value=-(2**31), max_value=2**31 - 1)
LONGS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
FIXED_BYTES = {("Envelope", "prev"): 16, ("AuditCheckpoint", "signature"): 64}
"""Fields of an Avro type `fixed`; a type hint does not know their size."""


def _short_fields() -> Iterator[tuple[str, str]]:
    """Record and field of every number that Avro bounds to 32 bits; a type hint does not know that either."""
    for file in AVRO.rglob("*.avsc"):
        schema = json.loads(file.read_text())
        for one in schema.get("fields", ()):
            if one["type"] == "int" or one["type"] == ["null", "int"]:
                yield schema["name"], one["name"]


SHORT_FIELDS = frozenset(_short_fields())
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: LONGS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=40),
}

_KNOWN: dict[type[Any], st.SearchStrategy[Any]] = {}


def records(record: type[Record]) -> st.SearchStrategy[Any]:
    """Any value of a generated record."""
    if record not in _KNOWN:
        hints = get_type_hints(record)
        strategies = {name: _values(record, name, hints[name]) for name in record.__struct_fields__}
        _KNOWN[record] = st.builds(record, **strategies)
    return _KNOWN[record]


def envelopes() -> st.SearchStrategy[Envelope]:
    """Any envelope of an event."""
    return records(Envelope)


def _values(record: type[Any], name: str, hint: Any) -> st.SearchStrategy[Any]:
    fixed = FIXED_BYTES.get((record.__name__, name))
    if fixed is not None:
        return st.binary(min_size=fixed, max_size=fixed)
    if (record.__name__, name) in SHORT_FIELDS:
        return INTS if hint is int else st.one_of(st.none(), INTS)
    return _of(hint)


def _of(hint: Any) -> st.SearchStrategy[Any]:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if isinstance(hint, type) and issubclass(hint, Record):
        return records(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*(st.none() if part is NoneType else _of(part) for part in arguments))
    if origin is tuple:
        return st.lists(_of(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=3)
    raise AssertionError(f"no strategy for {hint}")
