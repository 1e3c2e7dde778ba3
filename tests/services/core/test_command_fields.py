"""The fields of commands as JSON: whatever a record holds is described, parsed and shown the same way."""

import base64
import json
import math
import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas import codec
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.record_schema import record_schema
from loomlog.services.core.command_fields import (
    PROBLEMS_MAX,
    _fields_of,
    example_fields,
    field_names,
    fields_schema,
    parse_fields,
    to_json,
)
from tests.services.entities import Counter

ENVELOPE = CommandEnvelope(command_id="c", tenant="acme", subject="ada", issued_at_ms=7)
COMMANDS = sorted(
    (record for name, record in codec.CLASSES.items() if ".commands." in name), key=lambda record: record.SCHEMA
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """JSON that a field of that type accepts."""
    match kind:
        case "string":
            return TEXT
        case "boolean":
            return st.booleans()
        case "double":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "bytes":
            return st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())
        case {"type": "array", "items": items}:
            return st.lists(values_of(items), max_size=2)
        case {"type": "map", "values": values}:
            return st.dictionaries(TEXT, values_of(values), max_size=2)
        case {"type": "record", "fields": fields}:
            return objects_of(fields)
        case list():
            return st.one_of([st.none() if part == "null" else values_of(part) for part in kind])
    raise TypeError(kind)


def objects_of(fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    required = {field["name"]: values_of(field["type"]) for field in fields if "default" not in field}
    optional = {field["name"]: values_of(field["type"]) for field in fields if "default" in field}
    return st.fixed_dictionaries(required, optional=optional)


@given(st.data())
def test_fields_of_any_command_fit_its_schema_and_come_back_as_they_were(data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(COMMANDS))
    fields = data.draw(objects_of(_fields_of(record)))
    jsonschema_rs.validate(fields_schema(record), fields)
    command = parse_fields(record, json.loads(json.dumps(fields)), ENVELOPE)
    assert isinstance(command, record)
    assert command.envelope == ENVELOPE
    shown = to_json(command)
    assert {name: shown[name] for name in fields if fields[name] is not None} == {
        name: with_defaults(kind_of(record, name), value) for name, value in fields.items() if value is not None
    }
    # What is written to the log can be written and read.
    assert codec.local_codec().decode(codec.local_codec().encode(command)).record == command


def kind_of(record: Any, name: str) -> Any:
    (kind,) = [field["type"] for field in _fields_of(record) if field["name"] == name]
    return kind


def with_defaults(kind: Any, value: Any) -> Any:
    """The value with every optional field that was left out."""
    match kind:
        case list():
            return None if value is None else with_defaults(next(part for part in kind if part != "null"), value)
        case {"type": "array", "items": items}:
            return [with_defaults(items, item) for item in value]
        case {"type": "record", "fields": fields}:
            return {
                field["name"]: with_defaults(field["type"], value[field["name"]])
                if value.get(field["name"]) is not None
                else field["default"]
                if field["default"] != {} or "fields" not in field["type"]
                else with_defaults(field["type"], {})
                for field in fields
            }
    return value


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from(COMMANDS).flatmap(
        lambda record: st.tuples(
            st.just(record), st.dictionaries(st.sampled_from([*field_names(record), "other"]), ANY_JSON) | ANY_JSON
        )
    )
)
def test_anything_is_a_command_or_refused_by_name(drawn: tuple[Any, Any]) -> None:
    record, fields = drawn
    try:
        command = parse_fields(record, fields, ENVELOPE)
    except ValueError as error:
        text = str(error)
    else:
        assert codec.local_codec().decode(codec.local_codec().encode(command)).record == command
        return
    assert text.encode()


@pytest.mark.parametrize("record", COMMANDS, ids=lambda record: record.SCHEMA)
def test_every_command_has_an_example_that_it_accepts(record: Any) -> None:
    jsonschema_rs.validate(fields_schema(record), example_fields(record))
    parse_fields(record, example_fields(record), ENVELOPE)


@pytest.mark.parametrize(
    ("record", "fields", "text"),
    [
        (IncrementCounter, {}, "name is required: text"),
        (IncrementCounter, {"name": None}, "name must be text, not null"),
        (IncrementCounter, {"name": "a", "by": None}, "by must be a whole number from"),
        (IncrementCounter, {"name": "a", "by": 1.5}, "by must be a whole number from"),
        (IncrementCounter, {"name": "a", "by": True}, "by must be a whole number from"),
        (IncrementCounter, {"name": "a", "by": -(2**63) - 1}, "by is out of range"),
        (IncrementCounter, {"name": "a", "by": math.inf}, "by must be a whole number"),
        (IncrementCounter, {"name": "\ud800"}, "without half a surrogate pair"),
        (IncrementCounter, {"name": "a", "envelope": {}}, 'unknown field "envelope"'),
        (IncrementCounter, "a", "the fields must be an object, not this text"),
        (RepairAggregate, {"aggregate": "a", "state": "%"}, "state must be text in base64"),
        (StartRun, {"agent": "a", "sampling": {"top_q": 1}}, 'unknown field "top_q" in sampling; did you mean top_p?'),
        (StartRun, {"agent": "a", "options": {"run_timeout_s": 2**31}}, "options.run_timeout_s is out of range"),
        (StartRun, {"agent": "a", "tools": ["b", 1]}, "tools[1] must be text, not a whole number"),
        (StartRun, {"agent": "a", "options": {"metadata": {"k": 1}}}, "options.metadata.k must be text"),
        (
            StartRun,
            {"agent": "a", "sampling": {"temperature": math.nan}},
            "sampling.temperature must be a finite number",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(record: Any, fields: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_fields(record, fields, ENVELOPE)


def test_values_are_not_repeated() -> None:
    with pytest.raises(ValueError, match="text") as caught:
        parse_fields(IncrementCounter, {"name": ["secret"], "by": "secret"}, ENVELOPE)
    assert "secret" not in str(caught.value)


def test_many_problems_are_counted() -> None:
    with pytest.raises(ValueError, match=r"and 2 more$"):
        parse_fields(
            IncrementCounter, {"name": "a", "by": 1} | {f"field{n}": 1 for n in range(PROBLEMS_MAX + 2)}, ENVELOPE
        )


def test_3_0_is_a_whole_number() -> None:
    assert parse_fields(IncrementCounter, {"name": "a", "by": 3.0}, ENVELOPE).by == 3


def test_a_number_that_a_parser_had_to_round_is_refused() -> None:
    with pytest.raises(ValueError, match="by"):
        parse_fields(IncrementCounter, {"name": "a", "by": float(-(2**63) - 1)}, ENVELOPE)


def test_a_state_is_shown_without_class_names() -> None:
    state = {"a": Counter(value=1), "b": (Counter(value=2**70),), "c": math.nan, "_": b"\x00", "d": frozenset("ba")}
    zero = "AP8="
    assert to_json(state) == {
        "a": {"value": 1, "stamp": zero},
        "b": [{"value": str(2**70), "stamp": zero}],
        "c": None,
        "_": "AA==",
        "d": ["a", "b"],
    }
    with pytest.raises(TypeError, match="has no JSON"):
        to_json(object())


def test_an_unknown_record_is_named() -> None:
    with pytest.raises(LookupError, match=r"loom\.nothing\.Here"):
        record_schema("loom.nothing.Here")
