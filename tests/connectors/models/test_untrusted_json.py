import json

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.models import untrusted_json


def test_values_of_the_wrong_type_are_empty_ones() -> None:
    assert untrusted_json.fields([1]) == {} == untrusted_json.fields(None)
    assert untrusted_json.items({"a": 1}) == [] == untrusted_json.items("abc")
    assert untrusted_json.text(3) == "" == untrusted_json.text(None)
    assert [untrusted_json.count(value) for value in (True, "3", 2.5, None, -4)] == [0, 0, 0, 0, 0]


def test_a_count_is_kept_and_bounded() -> None:
    assert untrusted_json.count(17) == 17
    assert untrusted_json.count(1 << 70) == untrusted_json.MAX_COUNT


def test_half_an_emoji_is_repaired_where_a_text_or_a_value_is_whole() -> None:
    half = untrusted_json.decode(b'{"text": "a\\ud83d"}')
    assert half == {"text": "a\ud83d"}
    assert untrusted_json.text(half["text"]) == "a\ufffd"
    assert untrusted_json.encode(half) == '{"text":"a\ufffd"}'
    assert untrusted_json.encode({"text": "\ud83d" + "\ude42"}) == '{"text":"🙂"}'
    assert untrusted_json.decode(b'{"text": "\\ud83d\\ude42"}') == {"text": "🙂"}


@pytest.mark.parametrize(
    ("pieces", "shown", "whole"),
    [
        (["hi \ud83d", "\ude00 there"], ["hi ", "😀 there"], "hi 😀 there"),
        (["\ud83d", "\ude00\ud83d", "\ude00"], ["", "😀", "😀"], "😀😀"),
        (["a\ud83d", "b"], ["a", "\ufffdb"], "a\ufffdb"),
        (["a\ude00", "b"], ["a\ufffd", "b"], "a\ufffdb"),
        (["a\ud83d"], ["a"], "a"),
        (["a", None, 7, "", "b"], ["a", "", "", "", "b"], "ab"),
    ],
)
def test_the_pieces_of_a_text_are_joined_before_they_are_repaired(
    pieces: list[object], shown: list[str], whole: str
) -> None:
    text = untrusted_json.TextPieces()
    assert [text.add(piece) for piece in pieces] == shown
    assert str(text) == whole


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nope", b"\xff\xfe", b'{"a": "\\u00"}', b"[" * 5000, b'["\\u0041",' + b"[" * 90000]
)
def test_what_is_not_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        untrusted_json.decode(data)


def test_a_frame_that_is_not_json_is_an_interrupted_stream() -> None:
    with pytest.raises(Transient, match="some: the stream contained an event of 3 bytes that is not JSON") as caught:
        untrusted_json.frame("some", ServerSentEvent(name="message", data=b"<b>"))
    assert caught.value.kind == "broken_off"


def test_a_frame_that_is_no_object_is_an_empty_one() -> None:
    assert untrusted_json.frame("some", ServerSentEvent(name="message", data=b"[1]")) == {}
