from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.http.sse import FrameTooLarge
from loomlog.connectors.models.json_lines import JsonLineParser, json_lines

STREAM = '\ufeff{"a": "häl 🙂"}\r\n\n  \n{"b": 1}\n{"c"'.encode()
LINES = ['{"a": "häl 🙂"}'.encode(), b'{"b": 1}', b'{"c"']


def parsed(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    parser = JsonLineParser(limit)
    return [frame.data for chunk in chunks for frame in parser.feed(chunk)] + [frame.data for frame in parser.finish()]


def test_lines_are_frames_empty_ones_are_none_and_the_rest_counts() -> None:
    assert parsed(STREAM) == LINES


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cutting_gives_the_same_lines(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[start:end] for start, end in pairwise(edges))) == LINES


def test_a_line_is_given_as_soon_as_it_is_whole() -> None:
    parser = JsonLineParser(1000)
    assert parser.feed(b'{"a"') == []
    assert [frame.data for frame in parser.feed(b": 1}\n{")] == [b'{"a": 1}']


def test_a_line_without_end_is_refused_at_the_bound() -> None:
    parser = JsonLineParser(100)
    parser.feed(b"x" * 90)
    with pytest.raises(FrameTooLarge, match="100 bytes"):
        parser.feed(b"x" * 11)


def test_any_number_of_lines_is_fine() -> None:
    assert len(parsed(b"x" * 50 + b"\n", *[b"{}\n\n" * 50] * 20, limit=60)) == 1001


async def test_a_body_may_end_without_a_line_end() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"1\n"
        yield b"2"

    assert [frame.data async for frame in json_lines(chunks(), 1000)] == [b"1", b"2"]


async def test_leaving_the_lines_closes_the_chunks() -> None:
    closed = []

    async def chunks() -> AsyncGenerator[bytes]:
        try:
            yield b"1\n2\n"
        finally:
            closed.append(True)

    lines = json_lines(chunks(), 1000)
    assert (await anext(lines)).data == b"1"
    await lines.aclose()
    assert closed == [True]
