"""The schema of an input and its parser agree: what the one takes, the other takes too."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.services.core.operation_input import describe_schema, field_schemas, input_schema, parse_input
from loomlog.services.core.operations import PRINTABLE, PRINTABLE_WITH_TABS, AnyOperation
from loomlog.services.core.refusals import Refused
from tests.services.operations.cases import OPERATIONS

EXAMPLES = 20
TEXTS = st.characters(exclude_categories=["Cs", "Cc"])
"""Characters of texts: no store takes half a surrogate pair or NUL, whatever a schema says."""
ASCII = st.characters(codec="ascii", exclude_categories=["Cc"])
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(TEXTS, max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXTS, max_size=5), inner, max_size=3),
    max_leaves=5,
)
WITH_FIELDS = [operation for operation in OPERATIONS if field_schemas(operation.input)]
every = pytest.mark.parametrize("operation", WITH_FIELDS, ids=lambda operation: operation.name)


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return the strategy of values that a schema of an input takes."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values_of(one) for one in schema["anyOf"]])
    match schema.get("type"):
        case "integer":
            return st.integers(schema.get("minimum", -(2**53)), schema.get("maximum", 2**53))
        case "number":
            low, high = schema.get("minimum"), schema.get("maximum")
            return st.floats(low, high, allow_nan=False, allow_infinity=False)
        case "string" if "contentEncoding" in schema:
            return st.sampled_from(["", "AAAA"])
        case "string" if schema.get("pattern") not in (None, PRINTABLE, PRINTABLE_WITH_TABS):
            return st.from_regex(schema["pattern"], fullmatch=True, alphabet=ASCII).filter(
                lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 600)
            )
        case "string":
            most = min(schema.get("maxLength", 50), 600)
            return st.text(TEXTS, min_size=schema.get("minLength", 0), max_size=most)
        case "boolean":
            return st.booleans()
        case "array":
            most = min(schema.get("maxItems", 5), 5)
            return st.lists(values_of(schema.get("items", {})), min_size=schema.get("minItems", 0), max_size=most)
        case "object" if "properties" in schema:
            required = {name: values_of(schema["properties"][name]) for name in schema.get("required", ())}
            optional = {name: values_of(one) for name, one in schema["properties"].items() if name not in required}
            return st.fixed_dictionaries(required, optional=optional)
        case "object":
            more = schema.get("additionalProperties")
            values = values_of(more) if isinstance(more, dict) else ANY_JSON
            return st.dictionaries(st.text(TEXTS, max_size=5), values, max_size=3)
        case "null":
            return st.none()
    return ANY_JSON


@every
@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(data=st.data())
def test_what_the_schema_takes_is_parsed(operation: AnyOperation, data: st.DataObject) -> None:
    fields = data.draw(values_of(input_schema(operation.input)))
    jsonschema_rs.validate(dict(input_schema(operation.input)), fields)
    assert parse_input(operation.input, fields, code="bad_request") is not None


@every
@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(data=st.data())
def test_what_the_schema_refuses_is_refused_by_field_and_bound(operation: AnyOperation, data: st.DataObject) -> None:
    schemas = field_schemas(operation.input)
    wrong = {name: values for name, schema in schemas.items() if (values := refused_by(schema))}
    if not wrong:
        return  # any JSON
    name = data.draw(st.sampled_from(sorted(wrong)))
    fields = data.draw(values_of(input_schema(operation.input))) | {name: data.draw(st.sampled_from(wrong[name]))}
    with pytest.raises(Refused) as caught:
        parse_input(operation.input, fields, code="bad_request")
    assert name in caught.value.message
    if caught.value.message.startswith(f"{name}:"):  # else it names a part of the field
        assert describe_schema(schemas[name]) in caught.value.message


def refused_by(schema: Mapping[str, Any]) -> list[Any]:
    """Return values at the bounds and of other types that a schema does not take."""
    forms = [schema, *schema.get("anyOf", ())]
    values: list[Any] = [None, True, {"a": [1]}, [{"a": 1}], 1.5, -(2**63), "\x01", ""]
    for form in forms:
        values += [form["maximum"] + 1] if "maximum" in form else []
        values += [form["minimum"] - 1] if "minimum" in form else []
        values += ["a" * (form["maxLength"] + 1)] if "maxLength" in form else []
        values += [["a"] * (form["maxItems"] + 1)] if "maxItems" in form else []
    validator = jsonschema_rs.validator_for(dict(schema))
    return [value for value in values if not validator.is_valid(value)]
