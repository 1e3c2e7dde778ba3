from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.connectors.tools.arguments import check_arguments, require_supported_schema
from loomlog.connectors.tools.results import ToolCallRefused

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 5, "description": "d"},
        "mode": {"type": "string", "enum": ["on", "off"], "description": "d"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "description": "d"},
        "all": {"type": "boolean", "description": "d"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "d"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def refusal(arguments: Any) -> str:
    with pytest.raises(ToolCallRefused) as caught:
        check_arguments("Tool", arguments, SCHEMA)
    return str(caught.value)


def test_good_arguments_pass_unchanged() -> None:
    inputs = {"path": "a", "mode": "on", "count": 3, "all": True, "headers": {"A": "b"}}
    assert check_arguments("Tool", inputs, SCHEMA) == inputs


def test_null_for_an_optional_argument_means_absent() -> None:
    assert check_arguments("Tool", {"path": "a", "mode": None}, SCHEMA) == {"path": "a"}


def test_a_whole_float_is_an_integer() -> None:
    count = check_arguments("Tool", {"path": "a", "count": 3.0}, SCHEMA)["count"]
    assert (count, type(count)) == (3, int)


def test_all_problems_come_in_one_message() -> None:
    text = refusal({"pathh": "a", "count": "3"})
    assert text == (
        'Tool was not called: "pathh" is unknown, expected are path, mode, count, all, headers; '
        '"path" is missing, expected is text (not empty, at most 5 characters); '
        '"count" is text, expected is a whole number (at least 1, at most 9).'
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"path": None}, '"path" is missing'),
        ({"path": ""}, '"path" is empty'),
        ({"path": "abcdef"}, '"path" has 6 characters'),
        ({"path": 5}, '"path" is a number'),
        ({"path": ["a"]}, '"path" is a list'),
        ({"path": "a", "mode": "maybe"}, '"mode" is "maybe", expected is one of on, off'),
        ({"path": "a", "count": True}, '"count" is true'),
        ({"path": "a", "count": 0}, '"count" is 0'),
        ({"path": "a", "count": 10}, '"count" is 10'),
        ({"path": "a", "count": 2.5}, '"count" is a number'),
        ({"path": "a", "all": "yes"}, '"all" is text, expected is true or false'),
        ({"path": "a", "headers": {"A": 1}}, '"headers" holds values that are no text (A)'),
        ({"path": "a", "headers": "A: b"}, '"headers" is text'),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(arguments: dict[str, Any], problem: str) -> None:
    assert problem in refusal(arguments)


def test_arguments_that_are_no_object_are_refused() -> None:
    assert "as an object" in refusal(["path"])


def test_a_schema_that_says_more_than_is_checked_is_a_bug() -> None:
    require_supported_schema("Tool", SCHEMA)
    properties = {**SCHEMA["properties"], "path": {"type": "string", "pattern": "a", "description": "d"}}
    with pytest.raises(AssertionError):
        require_supported_schema("Tool", {**SCHEMA, "properties": properties})
    with pytest.raises(AssertionError):
        require_supported_schema("Tool", {**SCHEMA, "additionalProperties": True})
