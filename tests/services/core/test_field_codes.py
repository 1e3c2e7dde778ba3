"""Codes of fields: an operation may have some for a field, and for one that is missing."""

from typing import Any

import pytest

from loomlog.services.core.access.rules import ANY_CALLER
from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.operations import Effect, Input, NoOutput, Operation
from loomlog.services.core.refusals import Refused


class Searched(Input, frozen=True, kw_only=True):
    query: str
    sources: list[str] = []
    limit: int = 1
    values: list[Any] = []


SEARCH = Operation(
    name="memory.look",
    summary="Look.",
    input=Searched,
    output=NoOutput,
    access=ANY_CALLER,
    effect=Effect.READ,
    field_codes={"sources": "invalid_sources"},
    missing_codes={"query": "missing_query"},
)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "missing_query", "query is missing: expected text"),
        ({"query": None}, "missing_query", "query: expected text, not null"),
        ({"query": 7}, "bad_request", "query: expected text, not 7"),
        ({"query": "x", "sources": [1]}, "invalid_sources", "sources[0]: expected text, not 1"),
        ({"query": "x", "sources": ["\0"]}, "invalid_sources", "sources[0]: it has the character NUL"),
        ({"query": "x", "limit": "many"}, "bad_request", "limit: expected a whole number"),
        ({"query": "x", "colour": "red"}, "bad_request", "'colour' is unknown"),
    ],
)
def test_a_field_is_refused_with_its_own_code(fields: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_operation(SEARCH, fields)
    assert caught.value.code == code
    assert caught.value.message.startswith(text)


def test_what_is_any_json_is_left_to_what_keeps_it() -> None:
    assert parse_operation(SEARCH, {"query": "x", "values": ["a\0b"]}).values == ["a\0b"]
