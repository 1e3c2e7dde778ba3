import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas import codec as codec_module
from loomlog.schemas.codec import (
    CLASSES,
    DIGEST_BYTES,
    FRAME_BYTES,
    SCHEMA_IDS_CACHE_MAX,
    Codec,
    DecisionEnvelope,
    Undecodable,
    UnknownSchema,
    digest,
    local_codec,
    peek,
    read_envelope,
    read_text,
    released_schema,
)
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.run_events import RunParked, RunStarted, ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, Envelope
from tests.schemas.strategies import EVENTS, PLAIN, envelopes, records

FEW = settings(max_examples=30, deadline=None)
MORE = settings(max_examples=400, deadline=None)
ENVELOPE = Envelope(term=7, seq=3, aggregate="r_x", tenant="t", at_ms=5, prev=bytes(16))
CANCEL = CancelRun(envelope=CommandEnvelope(command_id="c"), run_id="r_x")


def all_bytes() -> st.SearchStrategy[bytes]:
    """Encoded records of every kind."""
    plain = st.sampled_from(PLAIN).flatmap(records).map(local_codec().encode)
    events = st.tuples(envelopes(), st.sampled_from(EVENTS).flatmap(records)).map(
        lambda pair: local_codec().encode_event(*pair)
    )
    return st.one_of(plain, events)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid record with a few bytes changed, removed, repeated or put in."""
    value = bytearray(draw(all_bytes()))
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        at = draw(st.integers(min_value=0, max_value=max(0, len(value) - 1)))
        match draw(st.sampled_from(["flip", "cut", "insert", "drop", "varint"])):
            case "flip" if value:
                value[at] ^= 1 << draw(st.integers(min_value=0, max_value=7))
            case "cut":
                del value[at:]
            case "insert":
                value[at:at] = draw(st.binary(max_size=12))
            case "drop":
                del value[at : at + 1]
            case "varint":
                # A length or a number that is huge or negative.
                value[at:at] = draw(
                    st.sampled_from([b"\xff" * 9 + b"\x01", b"\xfe" * 4 + b"\x0f", b"\x01", b"\x80" * 12])
                )
    return bytes(value)


def only_undecodable(value: bytes) -> None:
    """Every way to read these bytes gives an answer or Undecodable."""
    for read in (local_codec().decode, local_codec().name_of, peek, read_envelope):
        try:
            read(value)
        except Undecodable:
            continue


@pytest.mark.parametrize("record", PLAIN, ids=lambda record: record.__name__)
@FEW
@given(data=st.data())
def test_every_command_and_record_comes_back_as_it_was(record: type[Any], data: st.DataObject) -> None:
    value = data.draw(records(record))
    decoded = local_codec().decode(local_codec().encode(value))
    assert decoded.record == value
    assert decoded.envelope is None


@pytest.mark.parametrize("record", EVENTS, ids=lambda record: record.__name__)
@FEW
@given(data=st.data())
def test_every_event_comes_back_with_its_envelope(record: type[Any], data: st.DataObject) -> None:
    event, envelope = data.draw(records(record)), data.draw(envelopes())
    value = local_codec().encode_event(envelope, event)
    decoded = local_codec().decode(value)
    assert decoded.record == event
    assert decoded.envelope == envelope
    assert local_codec().name_of(value) == record.SCHEMA


@MORE
@given(envelope=envelopes(), event=st.sampled_from(EVENTS).flatmap(records))
def test_peek_and_read_envelope_say_what_decode_says(envelope: Envelope, event: Any) -> None:
    value = local_codec().encode_event(envelope, event)
    peeked = peek(value)
    assert (peeked.term, peeked.seq, peeked.aggregate) == (envelope.term, envelope.seq, envelope.aggregate)
    assert peeked.schema_id == local_codec().schema_id_of(type(event).SCHEMA)
    assert read_envelope(value)[0] == envelope


@MORE
@given(envelope=envelopes(), event=st.sampled_from(EVENTS).flatmap(records))
def test_events_of_one_decision_are_the_same_bytes_as_events_one_by_one(envelope: Envelope, event: Any) -> None:
    common = DecisionEnvelope(
        term=envelope.term,
        aggregate=envelope.aggregate,
        tenant=envelope.tenant,
        at_ms=envelope.at_ms,
        cause_id=envelope.cause_id,
        cause_offset=envelope.cause_offset,
    )
    value = local_codec().encode_decision_event(common, envelope.seq, envelope.prev, event)
    assert value == local_codec().encode_event(envelope, event)


def test_an_event_that_utf8_cannot_hold_is_an_error_of_the_writer_and_no_record() -> None:
    with pytest.raises(UnicodeEncodeError):
        local_codec().encode_event(ENVELOPE, ToolReturned(turn=1, index=0, call_id="\ud800"))


def test_the_body_goes_on_where_read_envelope_says() -> None:
    definition = AgentDefinition(name="a", provider="p", model="m")
    event = RunStarted(session_id="s_1", agent_id="a_1", definition=definition, segments=())
    value = local_codec().encode_event(ENVELOPE, event)
    _, at = read_envelope(value)
    session, at = read_text(value, at)
    handle, _ = read_text(value, at)
    assert (session, handle) == ("s_1", "a_1")


@MORE
@given(value=st.binary(max_size=200))
def test_random_bytes_are_undecodable_and_nothing_else(value: bytes) -> None:
    only_undecodable(value)


@MORE
@given(schema_id=st.integers(min_value=0, max_value=60), body=st.binary(max_size=200))
def test_a_right_frame_around_a_foreign_body_is_undecodable_and_nothing_else(schema_id: int, body: bytes) -> None:
    only_undecodable(b"\0" + schema_id.to_bytes(4, "big") + body)


@settings(max_examples=500, deadline=None)
@given(value=mutated())
def test_a_damaged_record_is_undecodable_or_another_record_and_nothing_else(value: bytes) -> None:
    only_undecodable(value)


@FEW
@given(value=all_bytes())
def test_a_record_cut_short_anywhere_is_undecodable(value: bytes) -> None:
    for end in range(len(value)):
        with pytest.raises(Undecodable):
            local_codec().decode(value[:end])
        only_undecodable(value[:end])


def test_a_body_that_is_cut_short_is_said_to_be() -> None:
    with pytest.raises(Undecodable, match=r"CancelRun version \d+: the body is cut short$"):
        local_codec().decode(local_codec().encode(CANCEL)[:7])


def test_bytes_after_the_body_are_undecodable() -> None:
    with pytest.raises(Undecodable, match="2 bytes are left"):
        local_codec().decode(local_codec().encode(CANCEL) + b"\0\0")


def test_an_unknown_schema_id_is_named() -> None:
    with pytest.raises(UnknownSchema, match="schema id 9999") as caught:
        local_codec().decode(b"\0" + (9999).to_bytes(4, "big") + b"anything")
    assert caught.value.schema_id == 9999


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(Undecodable, match="longer than 64 bits"):
        peek(b"\0\0\0\0\1" + b"\xff" * 20)


def test_the_newest_version_is_written_and_every_old_one_is_known() -> None:
    codec = Codec({7: (CancelRun.SCHEMA, 1), 9: (RunParked.SCHEMA, 1)})
    assert codec.encode(CANCEL)[:FRAME_BYTES] == b"\0\0\0\0\7"
    assert codec.decode(codec.encode(CANCEL)).record == CANCEL
    assert codec.schema_ids_of(frozenset({RunParked.SCHEMA})) == {9}
    with pytest.raises(UnknownSchema):
        codec.decode(local_codec().encode(CANCEL))


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the released schemas that a test may extend."""
    shutil.copytree(codec_module.HERE / "released", tmp_path / "released")
    monkeypatch.setattr(codec_module, "HERE", tmp_path)
    codec_module._parse_released.cache_clear()
    yield tmp_path / "released"
    codec_module._parse_released.cache_clear()


def test_a_record_of_an_older_version_gets_the_defaults_of_new_fields(released: Path) -> None:
    folder = released / ToolReturned.SCHEMA
    schema = json.loads((folder / "1.avsc").read_text())
    (folder / "2.avsc").write_text(json.dumps(schema))
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "outcome"]
    (folder / "1.avsc").write_text(json.dumps(schema))
    old = Codec({1: (ToolReturned.SCHEMA, 1)})
    both = Codec({1: (ToolReturned.SCHEMA, 1), 2: (ToolReturned.SCHEMA, 2)})
    event = ToolReturned(turn=1, index=0, call_id="c", text="it is said", outcome="timeout")
    decoded = both.decode(old.encode_event(ENVELOPE, event))
    assert decoded.record == ToolReturned(turn=1, index=0, call_id="c", text="it is said", outcome="ok")
    assert decoded.envelope == ENVELOPE
    assert both.encode_event(ENVELOPE, event)[:FRAME_BYTES] == b"\0\0\0\0\2"
    assert both.schema_ids_of(frozenset({ToolReturned.SCHEMA})) == {1, 2}


def test_every_locked_schema_has_its_class() -> None:
    lock = json.loads((codec_module.HERE / "ids.json").read_text())
    assert set(lock) == set(CLASSES)


def test_a_digest_has_the_size_the_envelope_holds() -> None:
    assert len(digest(b"any")) == DIGEST_BYTES == len(ENVELOPE.prev)
    assert digest(b"any") != digest(b"other")


def test_ids_are_looked_up_once_and_again_when_something_was_learned() -> None:
    codec, names = Codec.for_foreign_records(), frozenset({RunParked.SCHEMA})
    assert codec.schema_ids_of(names) == frozenset()
    codec.add_schema(77, RunParked.SCHEMA, 1, released_schema(RunParked.SCHEMA, 1))
    actual = codec.schema_ids_of(names)
    assert actual == {77}
    assert codec.schema_ids_of(names) is actual


def test_what_strangers_ask_for_is_not_kept_without_bound() -> None:
    codec = Codec()
    for number in range(3 * SCHEMA_IDS_CACHE_MAX):
        assert codec.schema_ids_of(frozenset({f"no.such.Record{number}"})) == frozenset()
    assert len(codec._schema_ids_cache) == SCHEMA_IDS_CACHE_MAX
    assert len(codec.schema_ids_of(frozenset({RunParked.SCHEMA}))) >= 1
