from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.models.tool_schema import flatten_schema


def test_a_plain_schema_keeps_all_its_words() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": False,
        "description": "d",
    }
    assert flatten_schema(schema) == schema


def test_an_empty_schema_becomes_an_object() -> None:
    assert flatten_schema({}) == {"type": "object", "properties": {}}


def test_alternatives_allow_all_properties_and_require_what_all_require() -> None:
    schema = {
        "properties": {"op": {"type": "string"}},
        "required": ["op"],
        "oneOf": [
            {"properties": {"op": {"const": "get"}, "key": {"type": "string"}}, "required": ["op", "key"]},
            {"properties": {"op": {"const": "list"}, "key": {"type": "string"}}, "required": ["key"]},
        ],
    }
    assert flatten_schema(schema) == {
        "type": "object",
        "properties": {
            "op": {"anyOf": [{"type": "string"}, {"const": "get"}, {"const": "list"}]},
            "key": {"type": "string"},
        },
        "required": ["op", "key"],
    }


def test_parts_that_all_apply_require_what_any_requires() -> None:
    schema = {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}
    assert flatten_schema(schema)["required"] == ["a", "b"]


def test_alternatives_that_only_require_leave_nothing_required() -> None:
    schema = {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert flatten_schema(schema) == {"type": "object", "properties": {"a": {}, "b": {}}}


def test_local_references_are_followed_and_circles_end() -> None:
    schema: dict[str, Any] = {
        "$defs": {"A": {"properties": {"a": {}}, "anyOf": [{"$ref": "#/$defs/B"}]}, "B": {"$ref": "#/$defs/A"}},
        "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/missing"}, {"$ref": "http://elsewhere/"}],
    }
    flat = flatten_schema(schema)
    assert flat["properties"] == {"a": {}}
    assert flat["$defs"] == schema["$defs"]
    assert "oneOf" not in flat


def test_a_schema_that_is_a_reference_is_resolved() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}}
    flat = flatten_schema(schema)
    assert (flat["properties"], flat["required"]) == ({"a": {}}, ["a"])
    assert "$ref" not in flat


WORDS = ["oneOf", "anyOf", "allOf", "properties", "required", "$ref", "type"]
JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["#/anyOf", "#/properties/a", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "a"]), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), JSON))
def test_any_schema_becomes_an_object_without_alternatives(schema: dict[str, Any]) -> None:
    flat = flatten_schema(schema)
    assert flat["type"] == "object"
    assert isinstance(flat["properties"], dict)
    assert {"oneOf", "anyOf", "allOf", "$ref"}.isdisjoint(flat)
