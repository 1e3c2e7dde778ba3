"""Output schemas: what is taken as one, and answers against it."""

from typing import Any

import orjson
import pytest

from loomlog.connectors.json_schema import SCHEMA_BYTES_MAX, Problem, SchemaRefused
from loomlog.connectors.output_schema import (
    RESULT_BYTES_MAX,
    OutputSchemas,
    check_answer,
    check_output_schema,
    json_path,
    parse_output_schema,
    schema_sha256,
    schema_text,
)

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
    "required": ["total"],
}
COMPILED = check_output_schema(INVOICE)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, 'must be "object"'),
        ({"type": "string"}, 'must be "object"'),
        ({"type": ["object", "null"]}, 'must be "object"'),
        ({"type": "object", "properties": {"a": {"$ref": "http://x.example/s"}}}, "leaves the schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "names nothing"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "refers to itself"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "contradicts itself"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "not a JSON Schema"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not a JSON Schema"),
        ({"type": "object", "description": "x" * SCHEMA_BYTES_MAX}, "at most 65536"),
    ],
)
def test_what_is_no_schema_of_a_record_is_refused_with_the_reason(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaRefused, match=said):
        check_output_schema(schema)


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"type":"array"}', " " * SCHEMA_BYTES_MAX + "{}"])
def test_a_producer_of_bad_text_is_refused(text: str) -> None:
    with pytest.raises(SchemaRefused):
        parse_output_schema(text)


def test_the_hash_ignores_the_order_of_keys_and_the_text_keeps_it() -> None:
    other = {"required": ["total"], "properties": INVOICE["properties"], "type": "object"}
    assert schema_sha256(INVOICE) == schema_sha256(other)
    assert schema_text(other).startswith('{"required"')
    assert parse_output_schema(schema_text(other)) == other


@pytest.mark.parametrize(
    "answer", ['{"total": 3}', ' {"total":3}\n', '```json\n{"total": 3}\n```', '```\n{"total": 3}\n```\n']
)
def test_a_record_is_taken_with_or_without_a_fence(answer: str) -> None:
    assert check_answer(COMPILED, answer).result == '{"total":3}'


@pytest.mark.parametrize(
    ("answer", "path", "said"),
    [
        ("Three euros.", "$", "not JSON"),
        ("", "$", "empty"),
        ('{"total": NaN}', "$", "not JSON"),
        ("[3]", "$", ""),
        ("{}", "$", "total"),
        ('{"total": -1}', "$.total", "minimum"),
        ('{"total": 1, "lines": [{"price": 1}, {"price": "2"}]}', "$.lines[1].price", ""),
    ],
)
def test_an_answer_that_is_no_record_says_where(answer: str, path: str, said: str) -> None:
    check = check_answer(COMPILED, answer)
    assert (check.result, check.path) == ("", path)
    assert said in check.error
    assert check.error.startswith(f"{path}: ")
    assert f"- {path}: " in check.problem


def test_a_record_has_a_largest_size() -> None:
    largest = RESULT_BYTES_MAX - len('{"total":1,"note":""}')
    answer = {"total": 1, "note": "x" * largest}
    assert check_answer(COMPILED, orjson.dumps(answer).decode()).result
    assert "at most" in check_answer(COMPILED, orjson.dumps({**answer, "note": "x" * (largest + 1)}).decode()).error


def test_a_place_is_a_json_path() -> None:
    value = {"a b": [{"x/y": {"0": 1}}]}
    assert json_path(Problem("/a b/0/x~1y/0", "type", "m"), value) == '$["a b"][0]["x/y"]["0"]'
    assert json_path(Problem("", "type", "m"), value) == "$"


def test_a_process_compiles_a_schema_once() -> None:
    schemas, digest = OutputSchemas(), schema_sha256(INVOICE)
    assert schemas.check(digest, INVOICE, "{}").path == "$"
    assert schemas.check(digest, {}, '{"total":1}').result  # known by its hash
