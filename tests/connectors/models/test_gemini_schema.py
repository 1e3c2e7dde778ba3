from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.models.gemini_schema import FORMATS, KEYWORDS, MAX_DEPTH, MAX_REFERENCES, TYPES, sanitise_schema

KNOWN = KEYWORDS | {"type", "enum", "format", "items", "properties", "required", "anyOf"}


def one(form: Any, **root: Any) -> Any:
    """What becomes of a property."""
    return sanitise_schema({"type": "object", "properties": {"a": form}, **root})["properties"]["a"]


def test_a_tool_without_arguments_has_no_schema() -> None:
    assert sanitise_schema({}) == {}
    assert sanitise_schema({"type": "object", "properties": {}, "additionalProperties": False}) == {}


def test_words_gemini_refuses_are_stripped_and_the_others_kept() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "title": "Search",
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {"^x": {}},
        "properties": {
            "query": {"type": "string", "minLength": 1, "pattern": "a+", "default": "x", "examples": ["y"]},
            "many": {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}, "uniqueItems": True},
        },
        "required": ["query", "gone"],
    }
    assert sanitise_schema(schema) == {
        "title": "Search",
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "pattern": "a+"},
            "many": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    ("form", "clean"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        (
            {"type": ["string", "integer"], "description": "d"},
            {"anyOf": [{"type": "string", "description": "d"}, {"type": "integer", "description": "d"}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"b": {"type": "string"}}}], "title": "t"},
            {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"b": {"type": "string"}}}]},
        ),
        ({"const": "get"}, {"type": "string", "enum": ["get"]}),
        ({"enum": ["a", "", "b", "a"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        ({"type": "integer", "enum": ["1", "2"]}, {"type": "integer"}),
        ({"enum": [1, 2]}, {"type": "integer"}),
        ({"const": True}, {"type": "boolean"}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "integer", "format": "int64"}, {"type": "integer", "format": "int64"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": {}}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "object", "properties": {}}, {"type": "object"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"properties": {"b": {}}}, {"type": "object", "properties": {"b": {"type": "string"}}}),
        ({"items": {"type": "number"}}, {"type": "array", "items": {"type": "number"}}),
        ({}, {"type": "string"}),
        (True, {"type": "string"}),
        ({"type": "String"}, {"type": "string"}),
    ],
)
def test_what_can_be_said_in_its_words_is_said(form: Any, clean: Any) -> None:
    assert one(form) == clean


def test_references_are_written_out_and_keep_their_description() -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    clean = {"type": "object", "properties": {"city": {"type": "string"}}, "description": "where"}
    assert one({"$ref": "#/$defs/Place", "description": "where"}, **{"$defs": {"Place": place}}) == clean
    assert one({"allOf": [{"$ref": "#/$defs/Place"}], "description": "where"}, **{"$defs": {"Place": place}}) == clean


def test_parts_that_all_hold_are_one_object() -> None:
    form = {
        "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
        "properties": {"c": {"type": "boolean"}},
    }
    clean = one(form, **{"$defs": {"A": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}})
    assert set(clean["properties"]) == {"a", "b", "c"}
    assert clean["required"] == ["a", "b"]


def test_references_in_a_circle_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"type": "string"}}}
    clean = one({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    assert clean["properties"] == {"next": {"type": "object"}, "value": {"type": "string"}}
    assert one({"$ref": "#"}) == {"type": "string"}
    assert one({"$ref": "https://elsewhere"}) == {"type": "string"}


@pytest.mark.parametrize(
    "step",
    [
        lambda n: {"type": "object", "properties": {word: {"$ref": f"#/$defs/s{n + 1}"} for word in "ab"}},
        lambda n: {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}, {"$ref": f"#/$defs/s{n + 1}"}]},
        lambda n: {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}, {"$ref": f"#/$defs/s{n + 1}"}]},
    ],
)
def test_a_schema_that_doubles_at_each_step_stays_small(step: Callable[[int], Any]) -> None:
    clean = one({"$ref": "#/$defs/s0"}, **{"$defs": {f"s{n}": step(n) for n in range(40)}})
    assert len(orjson.dumps(clean)) < 200 * MAX_REFERENCES


WORDS_IN = ["type", "properties", "items", "anyOf", "allOf", "oneOf", "enum", "const", "required", "$ref", "format"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["string", "object", "array", "null", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS_IN),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=2), JSON, max_size=3))
def test_whatever_goes_in_only_words_gemini_takes_come_out(properties: dict[str, Any]) -> None:
    clean = sanitise_schema({"properties": properties})
    if properties:
        _check(clean, 0)


def _check(schema: Any, depth: int) -> None:
    assert depth <= MAX_DEPTH + 2
    assert set(schema) <= KNOWN
    if "anyOf" in schema:
        assert set(schema) == {"anyOf"}
        for branch in schema["anyOf"]:
            _check(branch, depth + 1)
        return
    assert schema["type"] in TYPES
    assert schema.get("format", "int32") in {"int32", *FORMATS.get(schema["type"], ())}
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
    assert all(isinstance(choice, str) and choice for choice in schema.get("enum", ["x"]))
    assert schema["type"] != "object" or schema.get("properties", {"x": 1})
    for form in schema.get("properties", {}).values():
        _check(form, depth + 1)
    if schema["type"] == "array":
        _check(schema["items"], depth + 1)
