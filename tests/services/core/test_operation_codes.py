"""How an operation refuses a field: which code, and which sentence."""

from typing import Annotated, Any

import pytest
from msgspec import Meta

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operation_input import find_operation, input_schema, parse_operation, without_null
from loomlog.services.core.operations import Effect, Input, NoInput, NoOutput, Operation
from loomlog.services.core.refusals import Refused


class Part(Input, frozen=True, kw_only=True):
    name: str


class Wanted(Input, frozen=True, kw_only=True):
    name: str
    count: Annotated[int, Meta(ge=1)] | None = None
    parts: list[Part] = []
    weights: dict[str, float] | None = None


OPERATION = Operation(
    name="wish.make",
    summary="Wish.",
    input=Wanted,
    output=NoOutput,
    access=requires(TENANT),
    effect=Effect.WRITE,
    invalid_code="invalid",
    missing_code="missing",
    unknown_code="unknown",
)


def refused(**fields: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        parse_operation(OPERATION, fields)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "missing", "name is missing"),
        ({"name": None}, "missing", "name: expected text, not null"),
        ({"name": "a", "parts": [{}]}, "missing", "parts[0].name"),
        ({"name": "a", "nmae": 1}, "unknown", "did you mean name?"),
        ({"name": "a", "parts": [{"name": "b", "x": 1}]}, "unknown", "parts[0].x"),
        ({"name": 1}, "invalid", "name: expected text, not 1"),
        ({"name": "a", "count": 0}, "invalid", "count: expected a whole number from 1"),
        ({"name": "a", "weights": {"b": "c"}}, "invalid", "weights[...]: expected a number"),
    ],
)
def test_a_missing_an_unknown_and_an_invalid_field_have_codes_of_their_own(
    fields: dict[str, Any], code: str, text: str
) -> None:
    actual, message = refused(**fields)
    assert (actual, text in message) == (code, True), message


def test_a_whole_number_with_a_point_is_one_where_null_is_allowed_too() -> None:
    assert parse_operation(OPERATION, {"name": "a", "count": 3.0}).count == 3


def test_another_op_is_refused_with_a_hint() -> None:
    assert find_operation("make", {"make": OPERATION}, code="unknown_op") is OPERATION
    for op, hint in (
        ("mkae", "unknown op 'mkae'"),
        ("mkae", "did you mean make?"),
        (None, "null"),
        ([], "a list of 0"),
    ):
        with pytest.raises(Refused) as caught:
            find_operation(op, {"make": OPERATION}, code="unknown_op")
        assert caught.value.code == "unknown_op"
        assert hint in caught.value.message


def test_a_schema_without_null_keeps_the_rest() -> None:
    properties = input_schema(Wanted)["properties"]
    assert without_null(properties["count"]) == {"type": "integer", "minimum": 1}
    assert without_null(properties["name"]) == properties["name"]
    several = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "d"}
    assert without_null(several) == {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "d"}


def test_an_operation_without_codes_of_its_own_has_one() -> None:
    plain = Operation(
        name="wish.see", summary="See.", input=NoInput, output=NoOutput, access=requires(TENANT), effect=Effect.READ
    )
    with pytest.raises(Refused) as caught:
        parse_operation(plain, {"a": 1})
    assert caught.value.code == "bad_request"
