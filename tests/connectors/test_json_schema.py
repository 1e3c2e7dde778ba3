"""Schemas of strangers: what is checked, what is refused, and that neither takes long."""

import time

import pytest

from loomlog.connectors.json_schema import (
    MESSAGE_CHARS_MAX,
    PROBLEMS_MAX,
    Problem,
    SchemaRefused,
    compile_schema,
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "ages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
    "additionalProperties": False,
}
ANY_JSON = {
    "$defs": {
        "any": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/any"}},
                {
                    "type": "object",
                    "properties": {"next": {"$ref": "#/$defs/any"}},
                    "additionalProperties": {"$ref": "#/$defs/any"},
                },
            ]
        }
    },
    "$ref": "#/$defs/any",
}
TREE = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "of": {"type": "integer"}}}


def nested(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"next": value}
    return value


def doubling(levels: int) -> dict:
    steps = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**steps, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def test_a_value_that_meets_the_schema_has_no_problems():
    assert compile_schema(PERSON).find_problems({"name": "Ada", "ages": [36]}) == []


def test_every_problem_has_its_place():
    problems = compile_schema(PERSON).find_problems({"ages": [1, "two"], "a/b": 1})
    assert {(problem.path, problem.keyword) for problem in problems} == {
        ("/ages/1", "type"),
        ("", "required"),
        ("", "additionalProperties"),
    }


def test_a_problem_reads_as_a_sentence():
    assert str(Problem("/ages/1", "type", "is wrong")) == "/ages/1: is wrong"
    assert str(Problem("", "required", "is wrong")) == "the value: is wrong"


def test_problems_and_their_messages_are_bounded():
    problems = compile_schema({"items": {"type": "integer"}}).find_problems(["x" * 9_000] * 100)
    assert len(problems) == PROBLEMS_MAX
    assert all(len(problem.message) <= MESSAGE_CHARS_MAX + 5 for problem in problems)
    assert all('not of type "integer"' in problem.message for problem in problems)


@pytest.mark.parametrize("schema", [ANY_JSON, TREE, {"$schema": "http://json-schema.org/draft-07/schema#"}, {}])
def test_schemas_that_people_write_are_accepted(schema):
    assert compile_schema(schema).find_problems({"left": {"of": 1}}) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([], "must be a JSON object, not list"),
        ({"type": "strang"}, "/type"),
        ({"description": "x" * 70_000}, "at most 65536"),
        ({"properties": nested(40)}, "nested deeper than 32 levels"),
        ({"$ref": "http://169.254.169.254/latest"}, "leaves the schema"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "leaves the schema"),
        ({"$ref": "#/$defs/absent"}, "names nothing"),
        ({"properties": {"a": {"$id": "http://x/y"}}}, "$id is supported at the top"),
        ({"$dynamicRef": "#x"}, "$dynamicRef is not supported"),
        ({"$schema": "http://unknown/x"}, "meta-schema"),
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"pattern": "(a{1000}){1000}"}, "regex"),
        ({"type": "array", "minItems": 10, "maxItems": 3}, "contradicts itself"),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, "contradicts itself"),
        (doubling(12), "more than 2000 subschemas"),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}, "subschemas"),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"patternProperties": {".": {"$ref": "#"}}}]}, "subschemas"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(schema, message):
    began = time.process_time()
    with pytest.raises(SchemaRefused, match=message.replace("$", r"\$")):
        compile_schema(schema)
    assert time.process_time() - began < 30


def test_alternatives_whose_product_is_large_are_not_searched():
    one_of_four = [{"anyOf": [{"required": [f"p{i}{k}"]} for k in range(4)]} for i in range(16)]
    began = time.process_time()
    assert compile_schema({"allOf": one_of_four}).find_problems({}) != []
    assert time.process_time() - began < 30


def test_a_pattern_that_backtracks_for_ever_is_a_problem_and_takes_no_time():
    compiled = compile_schema({"pattern": r"^(\w+\s?)*(?=q)$"})
    assert compiled.find_problems("a" * 50_000 + "!")[0].message


@pytest.mark.parametrize(
    ("value", "message"), [(nested(70), "deeper than 64"), (list(range(60_000)), "more than 50000")]
)
def test_a_value_out_of_bounds_is_a_problem(value, message):
    [problem] = compile_schema({}).find_problems(value)
    assert message in problem.message


def test_half_a_surrogate_pair_in_a_value_is_no_crash():
    assert isinstance(compile_schema(PERSON).find_problems({"name": "\ud800"}), list)
