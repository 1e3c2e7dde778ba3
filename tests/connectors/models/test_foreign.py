import json

import pytest

from connectors.errors import Transient
from connectors.models import foreign
from connectors.models.sse import ServerEvent


def test_values_of_the_wrong_type_are_empty_ones() -> None:
    assert foreign.fields([1]) == {} == foreign.fields(None)
    assert foreign.items({"a": 1}) == [] == foreign.items("abc")
    assert foreign.text(3) == "" == foreign.text(None)
    assert [foreign.count(value) for value in (True, "3", 2.5, None, -4)] == [0, 0, 0, 0, 0]


def test_a_count_is_kept_and_bounded() -> None:
    assert foreign.count(17) == 17
    assert foreign.count(1 << 70) == foreign.MAX_COUNT


def test_half_an_emoji_is_read_with_a_replacement() -> None:
    assert foreign.decode(b'{"text": "\\ud83d"}') == {"text": "?"}
    assert foreign.decode(b'{"text": "\\ud83d\\ude42"}') == {"text": "🙂"}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nope", b"\xff\xfe", b'{"a": "\\u00"}', b"[" * 5000, b'["\\u0041",' + b"[" * 90000]
)
def test_what_is_not_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        foreign.decode(data)


def test_a_frame_that_is_not_json_is_an_interrupted_stream() -> None:
    with pytest.raises(Transient, match="some: the stream held an event of 3 bytes that is not JSON") as caught:
        foreign.frame("some", ServerEvent(name="message", data=b"<b>"))
    assert caught.value.kind == "broken_off"


def test_a_frame_that_is_no_object_is_an_empty_one() -> None:
    assert foreign.frame("some", ServerEvent(name="message", data=b"[1]")) == {}
