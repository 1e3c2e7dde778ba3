from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.codec import CLASSES, Codec, Undecodable, local_codec
from loomlog.schemas.fast_decoder import UnsupportedEncoding, _read_size, compile_decoder
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.generated.values import Envelope
from tests.projections.stories import started
from tests.schemas.strategies import EVENTS, PLAIN, envelopes, records
from tests.schemas.test_codec import ENVELOPE, mutated

QUICK = local_codec()
SLOW = Codec()
SLOW._fast_decoders = {}
"""Has fastavro decode everything."""
SETTINGS = settings(max_examples=30, deadline=None)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_record_of_today_is_read_the_quick_way(name: str) -> None:
    assert QUICK.schema_id_of(name).to_bytes(5, "big") in QUICK._fast_decoders


@pytest.mark.parametrize("record", PLAIN, ids=lambda record: record.__name__)
@SETTINGS
@given(data=st.data())
def test_a_command_or_a_record_is_what_fastavro_reads(record: type[Any], data: st.DataObject) -> None:
    value = QUICK.encode(data.draw(records(record)))
    assert QUICK.decode(value) == SLOW.decode(value)


@pytest.mark.parametrize("record", EVENTS, ids=lambda record: record.__name__)
@SETTINGS
@given(data=st.data())
def test_an_event_is_what_fastavro_reads(record: type[Any], data: st.DataObject) -> None:
    value = QUICK.encode_event(data.draw(envelopes()), data.draw(records(record)))
    decoded_record = QUICK.decode(value)
    assert (decoded_record, hash(decoded_record.envelope)) == (SLOW.decode(value), hash(SLOW.decode(value).envelope))


@settings(max_examples=1_000, deadline=None)
@given(value=mutated())
def test_what_is_damaged_is_refused_or_read_as_fastavro_does(value: bytes) -> None:
    quick = QUICK.decode_fast(value)
    if quick is not None:
        slow = SLOW.decode(value)
        # As text, because a damaged number may be NaN.
        assert repr(quick) == repr((slow.envelope, slow.record))


def test_an_array_whose_blocks_say_their_size_is_read_the_long_way() -> None:
    plain = QUICK.encode_event(ENVELOPE, started(allowed_hosts=("a",)))
    # Union branch 1, one item, "a", end: the item count negative, then the size of the block.
    assert plain.count(b"\x02\x02\x02a\x00") == 1
    sized = plain.replace(b"\x02\x02\x02a\x00", b"\x02\x01\x04\x02a\x00")
    assert QUICK.decode_fast(sized) is None
    assert QUICK.decode(sized) == QUICK.decode(plain)


def test_a_record_that_is_cut_short_says_so_in_words() -> None:
    value = QUICK.encode_event(ENVELOPE, RunParked(since_turn=1))
    assert QUICK.decode_fast(value[:-1]) is None
    with pytest.raises(Undecodable, match="RunParked version 1"):
        QUICK.decode(value[:-1])


def test_a_schema_that_does_not_fit_its_class_has_no_quick_way() -> None:
    schema = {"type": "record", "namespace": "n", "name": "RunParked", "fields": [{"name": "other", "type": "long"}]}
    assert compile_decoder(schema, RunParked, has_envelope=False) is None
    assert compile_decoder(schema, RunParked, has_envelope=True) is None


def test_a_decoded_envelope_cannot_be_changed() -> None:
    envelope = QUICK.decode(QUICK.encode_event(ENVELOPE, RunParked(since_turn=1))).envelope
    assert type(envelope) is Envelope
    with pytest.raises(AttributeError):
        envelope.seq = 4  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize("size", [b"\x01", b"\xff\xff\x01"])
def test_a_negative_length_is_not_read(size: bytes) -> None:
    with pytest.raises(UnsupportedEncoding):
        _read_size(size, 1, size[0])
