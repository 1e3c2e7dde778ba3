"""Schemas of strangers: ours are taken, and none by which a few bytes would keep or kill whoever reads them."""

import json
from typing import Any

import pytest
from fastavro import parse_schema

from loomlog.schemas.codec import HERE, Codec, Undecodable
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.schema_safety import DEPTH_MAX, UnsafeSchema, check_schema


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{at}", "type": one} for at, one in enumerate(types)]}


def chain(length: int) -> dict[str, Any]:
    """Records each of which holds the one before it, by its name."""
    return record(
        record("int", name="C0"), *(record(f"C{number - 1}", name=f"C{number}") for number in range(1, length))
    )


ITSELF = record(["null", "R"])
NOTHING: dict[str, Any] = {"type": "record", "name": "N", "fields": []}
UNFIT: list[tuple[Any, str]] = [
    (record({"type": "array", "items": "null"}), "null is outside a union"),
    (record({"type": "array", "items": {"type": "null"}}), "null is outside a union"),
    (record({"type": "map", "values": "null"}), "null is outside a union"),
    (record({"type": "array", "items": NOTHING}), "N has no fields"),
    (record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "F has no bytes"),
    (ITSELF, "R contains itself"),
    (record({"type": "array", "items": record(["null", "R"], name="S")}), "R contains itself"),
    (record({"type": "bytes", "logicalType": "decimal", "precision": 10**6}), "logical type"),
    (chain(2 * DEPTH_MAX), f"nested more than {DEPTH_MAX} deep"),
]


@pytest.mark.parametrize(("schema", "why"), UNFIT)
def test_records_that_cost_more_than_their_bytes_are_not_read(schema: Any, why: str) -> None:
    with pytest.raises(UnsafeSchema, match=why):
        check_schema(parse_schema(schema, named_schemas={}))


def test_types_deep_in_each_other_are_not_read() -> None:
    deep: Any = "int"
    for _ in range(2 * DEPTH_MAX):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UnsafeSchema, match=f"nested more than {DEPTH_MAX} deep"):
        check_schema(parse_schema(record(deep), named_schemas={}))


def test_every_schema_that_was_ever_released_is_read() -> None:
    paths = sorted(HERE.glob("released/*/*.avsc"))
    assert len(paths) > 50
    for path in paths:
        check_schema(parse_schema(json.loads(path.read_text()), named_schemas={}))


def test_a_type_that_is_named_again_is_read() -> None:
    check_schema(parse_schema(record(record("int", name="S"), "S", {"type": "array", "items": "S"}), named_schemas={}))


@pytest.mark.parametrize("schema", [UNFIT[0][0], ITSELF])
def test_a_codec_learns_no_such_schema(schema: Any) -> None:
    with pytest.raises(Undecodable, match=r"UnsafeSchema: "):
        Codec.for_foreign_records().add_schema(1, RunParked.SCHEMA, 1, schema)
