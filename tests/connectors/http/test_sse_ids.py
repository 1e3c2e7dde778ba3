import pytest

from loomlog.connectors.http.sse import EventParser, FrameTooLarge, ServerSentEvent


def parsed(*chunks: bytes, last_id: str = "") -> list[ServerSentEvent]:
    parser = EventParser(1000, last_id=last_id)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_an_event_has_its_name_its_data_and_its_id():
    assert parsed(b'event: text\nid: 258\ndata: {"a":1}\n\n') == [
        ServerSentEvent(name="text", data=b'{"a":1}', last_id="258", has_own_id=True)
    ]


def test_the_order_of_the_lines_does_not_matter():
    assert parsed(b"data: x\nid: 258\nevent: text\n\n") == [
        ServerSentEvent(name="text", data=b"x", last_id="258", has_own_id=True)
    ]


def test_an_event_without_an_id_keeps_the_last_one_but_not_as_its_own():
    first, second = parsed(b"id: 7\ndata: a\n\ndata: b\n\n")
    assert (first.last_id, first.has_own_id) == ("7", True)
    assert (second.last_id, second.has_own_id) == ("7", False)


def test_bytes_may_be_cut_anywhere():
    whole = 'event: text\r\nid: 1\r\ndata: {"t":"zwölf"}\r\n\r\n: keepalive\n\ndata: x\n\n'.encode()
    expected = parsed(whole)
    assert len(expected) == 2
    for cut in range(1, len(whole)):
        assert parsed(whole[:cut], whole[cut:]) == expected
    assert parsed(*(bytes([byte]) for byte in whole)) == expected


def test_characters_that_look_like_line_ends_are_data():
    found = parsed('data: {"t":"a\u2028b\u0085c"}\n\n'.encode())
    assert found[0].data.decode() == '{"t":"a\u2028b\u0085c"}'


def test_data_lines_are_joined_and_one_space_after_the_colon_is_dropped():
    assert parsed(b"data: a\ndata:  b\ndata:c\n\n")[0].data == b"a\n b\nc"


def test_comments_and_events_without_data_are_no_events():
    assert parsed(b": keepalive\n\nevent: nothing\n\nid: 9\n\n") == []


def test_an_id_without_data_is_remembered_for_the_next_event():
    assert parsed(b"id: 9\n\ndata: x\n\n")[0].last_id == "9"


def test_what_is_pending_at_the_end_is_dropped():
    assert parsed(b"data: half") == []


def test_any_number_of_comments_is_fine_but_an_endless_event_is_not():
    parser = EventParser(100)
    for _ in range(100):
        assert parser.feed(b": keepalive\n\n") == []
    with pytest.raises(FrameTooLarge, match="100 bytes"):
        parser.feed(b"data: " + b"x" * 200)


def test_a_reconnected_parser_goes_on_from_the_id_it_was_given():
    assert parsed(b"data: x\n\n", last_id="512")[0].last_id == "512"
