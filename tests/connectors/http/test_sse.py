from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.http.sse import EventParser, FrameTooLarge, ServerSentEvent, server_events

STREAM = (
    "\ufeffevent: greeting\ndata: häl\r\ndata: lo 🙂\r\rdata\n\n: a comment\n\nid: 7\nretry: 3\ndata:no blank\n\n"
    'event: empty\n\ndata: {"a":\ndata:  1}\n\ndata: pending\n'
).encode()
EVENTS = [
    ServerSentEvent(name="greeting", data="häl\nlo 🙂".encode()),
    ServerSentEvent(name="message", data=b""),
    ServerSentEvent(name="message", data=b"no blank", last_id="7", has_own_id=True),
    ServerSentEvent(name="message", data=b'{"a":\n 1}', last_id="7"),
]


def parsed(*chunks: bytes, limit: int = 1000) -> list[ServerSentEvent]:
    parser = EventParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_a_whole_stream_gives_its_events_and_drops_what_is_pending() -> None:
    assert parsed(STREAM) == EVENTS


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cutting_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[start:end] for start, end in pairwise(edges))) == EVENTS


def test_single_bytes_give_the_same_events() -> None:
    assert parsed(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_ends_a_line(end: bytes) -> None:
    assert parsed(b"data: a" + end + end + b"data: b" + end + end + end) == [
        ServerSentEvent(name="message", data=b"a"),
        ServerSentEvent(name="message", data=b"b"),
    ]


def test_a_line_without_end_is_refused_at_the_bound() -> None:
    parser = EventParser(100)
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(FrameTooLarge, match="100 bytes"):
        parser.feed(b"x" * 10)


def test_many_small_data_lines_are_refused_at_the_bound() -> None:
    with pytest.raises(FrameTooLarge):
        parsed(b"data: x\n" * 20, limit=100)


def test_any_number_of_comments_and_events_is_fine() -> None:
    assert len(parsed(b": keep-alive\n" * 50 + b"data: x\n\n" * 50, limit=100)) == 50


async def test_leaving_the_events_closes_the_chunks() -> None:
    closed = []

    async def chunks() -> AsyncGenerator[bytes]:
        try:
            yield b"data: 1\n\ndata: 2\n\n"
        finally:
            closed.append(True)

    events = server_events(chunks(), 1000)
    assert (await anext(events)).data == b"1"
    await events.aclose()
    assert closed == [True]
