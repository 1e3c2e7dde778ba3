"""Ids of messages and cursors."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.families.channel.cursor import (
    NS_PER_MS,
    OLDEST,
    Cursor,
    cursor_text,
    message_id,
    next_ns,
    parse_cursor,
)

KEY = "acme/work/tenant/"
TIMES = st.integers(0, 2**53)


@given(TIMES, TIMES)
def test_a_cursor_is_read_as_it_was_written(published_ns: int, visible_ns: int) -> None:
    text = cursor_text(visible_ns, message_id(KEY, published_ns))
    assert parse_cursor(text, KEY) == Cursor(visible_ns, published_ns)
    assert re.fullmatch(r"cur_[0-9a-f]{16}_msg_[0-9a-f]{24}", text)


def test_the_oldest_cursor_is_of_every_queue() -> None:
    assert parse_cursor(OLDEST, KEY) == Cursor(0, 0)


@given(st.text(max_size=60))
def test_any_other_text_is_refused_with_itself(text: str) -> None:
    if text == OLDEST:
        return
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_cursor(text, KEY)


@given(TIMES)
def test_a_cursor_is_of_one_queue(published_ns: int) -> None:
    text = cursor_text(5, message_id(KEY, published_ns))
    with pytest.raises(ValueError, match="another queue"):
        parse_cursor(text, "zeta/work/tenant/")


@given(st.lists(st.integers(1_700_000_000_000, 1_700_000_000_009), min_size=1, max_size=30), st.integers(0, 2_000_010))
def test_times_rise_with_the_number_below_the_millisecond(clock_ms: list[int], before: int) -> None:
    last_ns = 0
    for step, at_ms in enumerate(clock_ms):
        number = before + step + 1
        time_ns = next_ns(at_ms, number, last_ns)
        assert time_ns > last_ns
        assert time_ns % NS_PER_MS == number % NS_PER_MS
        assert time_ns // NS_PER_MS >= at_ms
        last_ns = time_ns


def test_more_than_a_million_messages_of_a_millisecond_go_on_in_the_next() -> None:
    first = next_ns(7, 999_999, 0)
    assert first == 7_999_999
    assert next_ns(7, 1_000_000, first) == 8_000_000
