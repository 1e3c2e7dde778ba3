import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.tools.results import ToolCallRefused, decode_text, encode_text, escape_name, to_valid_text


@given(st.binary())
def test_any_bytes_become_text_that_every_store_takes(data: bytes) -> None:
    text = decode_text(data)
    assert "\0" not in text
    assert text.encode().decode() == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers(0, 3))
def test_a_cut_in_the_middle_of_a_character_leaves_it_out(text: str, cut: int) -> None:
    data = text.encode()
    shown = decode_text(data[: len(data) - cut], complete=False)
    assert text.startswith(shown)
    assert "�" not in shown or "�" in text


def test_bytes_that_are_no_text_are_shown_as_replacements() -> None:
    assert decode_text(b"a\xffb\0c") == "a�b�c"


@given(st.binary(min_size=1))
def test_a_file_name_of_any_bytes_stays_on_one_line(name: bytes) -> None:
    shown = escape_name(name.decode("utf-8", "surrogateescape"))
    assert len(shown.splitlines()) == 1
    assert not any(unicodedata.category(c) == "Cc" for c in shown)
    orjson.dumps(shown)


def test_a_line_end_in_a_name_is_written_out() -> None:
    assert escape_name("a\nb") == "a\\x0ab"
    assert escape_name("bücher.txt") == "bücher.txt"


def test_an_undecodable_name_is_still_text() -> None:
    assert to_valid_text("a\udcffb") == "a�b"


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ToolCallRefused, match="lone surrogate at position 1"):
        encode_text("a\ud800", "The content")
