from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.codec import _load_released
from loomlog.schemas.fast_encoder import CACHED_NUMBERS, ZIGZAG, compile_writer
from loomlog.schemas.generated.run_events import ModelCallRequested, RunStarted
from loomlog.schemas.records import replace
from tests.schemas.strategies import LONGS, PLAIN, records


def parsed(name: str) -> Any:
    return parse_schema(_load_released(name, 1), named_schemas={})


def written(schema: Any, value: Any) -> bytes:
    """What fastavro writes."""
    out = BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


@pytest.mark.parametrize("record", PLAIN, ids=lambda record: record.__name__)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_compiled_writer_writes_what_fastavro_writes(record: type[Any], data: st.DataObject) -> None:
    """Events are in test_codec, where they have an envelope."""
    schema, value = parsed(record.SCHEMA), data.draw(records(record))
    assert compile_writer(schema)(value) == written(schema, value.to_avro())


@given(number=st.one_of(LONGS, st.integers(-2 * CACHED_NUMBERS, 2 * CACHED_NUMBERS)))
def test_a_number_has_the_bytes_that_fastavro_gives_it(number: int) -> None:
    assert ZIGZAG[number] == written("long", number)
    assert all(-1 <= kept < CACHED_NUMBERS or kept % 1000 == 0 for kept in ZIGZAG)
    assert len(ZIGZAG) <= 3 * CACHED_NUMBERS


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_definitions_whose_bytes_are_kept_are_written_as_they_are(data: st.DataObject) -> None:
    schema = parsed(RunStarted.SCHEMA)
    body = {**schema, "fields": schema["fields"][1:]}
    writer, started = compile_writer(body), data.draw(records(RunStarted))
    changed = replace(started, definition=replace(started.definition, name=started.definition.name + "2"))
    for event in (started, started, changed, started):
        assert writer(event) == written(body, event.to_avro())


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_a_number_that_64_bits_cannot_hold_is_an_error(number: int) -> None:
    request = ModelCallRequested(turn=number, attempt=1, provider="p", model="m")
    schema = parsed(ModelCallRequested.SCHEMA)
    with pytest.raises(OverflowError, match=str(number)):
        compile_writer({**schema, "fields": schema["fields"][1:]})(request)


def test_a_schema_with_a_type_we_never_used_is_refused_when_it_is_compiled() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "text", "type": ["null", "string", "long"]}]}
    with pytest.raises(AssertionError, match="no writer for the Avro type"):
        compile_writer(schema)
