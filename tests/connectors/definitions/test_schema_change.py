"""Which changes of an output schema its readers survive."""

from typing import Any

import pytest

from loomlog.connectors.definitions.schema_change import BREAKING, COMPATIBLE, REASONS_MAX, compare_output

OLD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "state": {"enum": ["open", "paid"]},
        "note": {"type": "string", "maxLength": 80},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["total", "state"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}},
}


def changed(name: str, form: Any) -> dict[str, Any]:
    return {**OLD, "properties": {**OLD["properties"], name: form}}


def kind(new: dict[str, Any], old: dict[str, Any] | None = None) -> tuple[str, list[str]] | None:
    return compare_output({"output_schema": OLD if old is None else old}, {"output_schema": new})


@pytest.mark.parametrize(
    "new",
    [
        {**OLD, "required": ["total", "state", "note"]},
        {**OLD, "title": "Invoice", "description": "d"},
        changed("customer", {"type": "string"}),
        changed("total", {"type": "integer", "minimum": 1}),
        changed("state", {"enum": ["paid"]}),
        changed("state", {"const": "open"}),
        changed("note", {"type": "string", "maxLength": 40, "minLength": 1}),
        {**OLD, "properties": {name: form for name, form in OLD["properties"].items() if name != "note"}},
    ],
)
def test_what_a_reader_of_the_old_records_can_read_is_compatible(new: dict[str, Any]) -> None:
    assert kind(new) == (COMPATIBLE, [])


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({**OLD, "required": ["total"]}, "$.state: may be absent now"),
        (changed("total", {"type": ["number", "null"], "minimum": 0}), "$.total: may be null now"),
        (changed("total", {"type": "number"}), "$.total: minimum is gone and was 0"),
        (changed("total", {"type": "number", "minimum": -1}), "$.total: minimum is -1 and was 0"),
        (changed("note", {"type": "string", "maxLength": 90}), "$.note: maxLength is 90 and was 80"),
        (changed("state", {"enum": ["open", "void"]}), "$.state: may be 'void' now"),
        (changed("state", {"type": "string"}), "$.state: may be another value than ['open', 'paid'] now"),
        (changed("note", True), "$.note: may be anything now"),
        (
            {**OLD, "$defs": {"line": {**OLD["$defs"]["line"], "required": []}}},
            "$.lines[*].price: may be absent now",
        ),
    ],
)
def test_what_a_reader_could_not_meet_before_is_breaking_and_says_where(new: dict[str, Any], reason: str) -> None:
    assert kind(new) == (BREAKING, [reason])


def test_conditions_are_compared_as_they_are_written() -> None:
    old = changed("note", {"anyOf": [{"type": "string"}, {"type": "null"}]})
    assert kind(changed("note", {"anyOf": [{"type": "string"}]}), old) == (COMPATIBLE, [])
    assert kind(changed("note", {"anyOf": [{"type": "integer"}]}), old) == (
        BREAKING,
        ["$.note: anyOf has other alternatives"],
    )
    pattern = changed("note", {"type": "string", "maxLength": 80, "pattern": "^a"})
    assert kind(OLD, pattern) == (BREAKING, ["$.note: pattern has changed"])


def test_recursion_ends() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "of": {"type": "integer"}}, "required": ["of"]}
    other = {**tree, "required": []}
    assert kind(other, tree) == (BREAKING, ["$.of: may be absent now", "$.left.of: may be absent now"])


def test_a_schema_that_comes_or_goes() -> None:
    assert compare_output({}, {}) is None
    assert compare_output({"output_schema": OLD}, {"output_schema": dict(OLD)}) is None
    assert compare_output({}, {"output_schema": OLD}) == (COMPATIBLE, [])
    assert compare_output({"output_schema": OLD}, {}) == (BREAKING, ["$: the answer is any text now"])


def test_reasons_are_bounded() -> None:
    wide = {"type": "object", "required": [f"p{number}" for number in range(100)]}
    change = compare_output({"output_schema": wide}, {"output_schema": {"type": "object"}})
    assert change is not None
    assert len(change.reasons) == REASONS_MAX
