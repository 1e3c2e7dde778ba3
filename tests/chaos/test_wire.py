"""The compiled reader reads what fastavro reads, and leaves to it what is broken."""

import re

import pytest
from hypothesis import given, settings

from tests.chaos.wire import Unreadable, _names, _reader, decode, read_slowly
from tests.schemas.test_codec import all_bytes, mutated


def slowly(value: bytes) -> str:
    """What fastavro says of the record, as text, because a damaged number may be NaN."""
    try:
        return repr(read_slowly(value, *_names()[int.from_bytes(value[1:5], "big")]))
    except Unreadable as error:
        return told(error)


def told(error: Unreadable) -> str:
    """Without the addresses of objects, which fastavro names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(error))


@pytest.mark.parametrize("place", sorted(_names().values()), ids=str)
def test_every_released_schema_has_a_compiled_reader(place: tuple[str, int]) -> None:
    assert _reader(*place) is not None


@settings(max_examples=1_000, deadline=None)
@given(value=all_bytes())
def test_a_record_is_what_fastavro_reads(value: bytes) -> None:
    assert repr(decode(value)) == slowly(value)


@settings(max_examples=2_000, deadline=None)
@given(value=mutated())
def test_what_is_damaged_is_refused_or_read_as_fastavro_does(value: bytes) -> None:
    try:
        text = repr(decode(value))
    except Unreadable as error:
        text = told(error)
    if len(value) >= 5 and value[0] == 0 and int.from_bytes(value[1:5], "big") in _names():
        assert text == slowly(value)
