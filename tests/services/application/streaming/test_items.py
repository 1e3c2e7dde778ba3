import gc

import orjson
import pytest

from loomlog.projections.frames.frame import FrameMemory, PendingInput
from loomlog.schemas.codec import Codec, DecodedRecord, Undecodable, local_codec
from loomlog.schemas.generated.run_events import Event, InputReceived, ModelCallRequested
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent
from loomlog.services.application.streaming.items import DeltaItem, EventItem, restore_item, stored_event

EVENT = InputReceived(text="hello", source="api")


class Counting(Codec):
    """Counts how often something is decoded."""

    decoded = 0

    def decode(self, value: bytes) -> DecodedRecord:
        self.decoded += 1
        return super().decode(value)


def raw(event: Event = EVENT) -> RawEvent:
    envelope = Envelope(term=1, seq=3, aggregate="r_1", tenant="acme", at_ms=5, cause_id="c_1", prev=bytes(16))
    value = local_codec().encode_event(envelope, event)
    return RawEvent(9, local_codec().schema_id_of(event.SCHEMA), 1, 3, "r_1", value)


def test_an_event_is_decoded_once_however_many_ask() -> None:
    codec = Counting()
    item = EventItem(raw(), 0, codec)
    for _ in range(3):
        assert item.record == EVENT
        item.frames(FrameMemory())
    assert codec.decoded == 1


def test_the_envelope_alone_is_read_without_decoding() -> None:
    codec = Counting()
    item = EventItem(raw(), 0, codec)
    assert (item.envelope.cause_id, item.envelope.tenant) == ("c_1", "acme")
    assert codec.decoded == 0
    assert item.record == EVENT


def test_frames_and_their_bytes_are_shared() -> None:
    item = EventItem(raw(ModelCallRequested(turn=2, attempt=1, provider="mock", model="m")), 0)
    memory = FrameMemory(pending_inputs=(PendingInput("hello", "api", 5),))
    first, second = item.frames(memory), item.frames(memory)
    assert first[1] is second[1]
    (piece,) = first[1]
    assert (piece.seq, piece.type) == (3 * 256, "steer"), "the stored face of an input is not live"
    assert orjson.loads(piece.data)["user_input"]["text"] == "hello"


def test_a_preview_is_decoded_and_encoded_once() -> None:
    codec = Counting()
    delta = ModelDelta(term=1, run_id="r_1", turn=1, attempt=1, start=0, text="hel", thinking=True)
    item = DeltaItem(codec.encode(delta), 2, codec)
    assert item.delta == delta
    assert item.chunk() is item.chunk()
    assert item.chunk().type == "thinking"
    assert codec.decoded == 1


def test_what_cannot_be_read_says_so() -> None:
    broken = raw()
    item = EventItem(RawEvent(9, broken.schema_id, 1, 3, "r_1", broken.value[:-2]), 0)
    with pytest.raises(Undecodable):
        item.frames(FrameMemory())


def test_what_is_kept_becomes_the_same_item_again() -> None:
    event = restore_item("r_1", stored_event(raw(), 2), None)
    assert isinstance(event, EventItem)
    assert (event.raw, event.partition, event.record) == (raw(), 2, EVENT)
    delta = ModelDelta(term=1, run_id="r_1", turn=1, attempt=1, start=0, text="hel", thinking=True)
    preview = restore_item("r_1", (3, local_codec().encode(delta)), None)
    assert isinstance(preview, DeltaItem)
    assert (preview.delta, preview.partition) == (delta, 3)


def test_what_is_kept_is_nothing_for_the_garbage_collector() -> None:
    kept = stored_event(raw(), 2)
    gc.collect()
    assert not gc.is_tracked(kept)
