import pytest
from starlette.requests import Request

from loomlog.projections.frames.frame import SESSION_STRIDE
from loomlog.services.api.request_parsing import parse_time_ms, query_flag, query_integer, query_text, resume_after
from loomlog.services.core.refusals import Refused


def request(query: str = "", *, last_event_id: str | None = None) -> Request:
    headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
    return Request({"type": "http", "query_string": query.encode(), "headers": headers, "method": "GET", "path": "/"})


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1970-01-01 00:00:00.250Z", 250),
        ("1970-01-01T00:01Z", 60_000),
    ],
)
def test_times_are_understood_as_rfc_3339(value: str, at_ms: int) -> None:
    assert parse_time_ms("from", value) == at_ms


@pytest.mark.parametrize("value", ["", "now", "2026", "2026-02-30", "2026-01-01T25:00:00Z", "12:00", "1e9", "20260101"])
def test_other_times_are_refused_by_name(value: str) -> None:
    with pytest.raises(Refused, match="from is"):
        parse_time_ms("from", value)


@pytest.mark.parametrize(
    ("query", "header", "place"),
    [
        ("", None, 0),
        ("from_seq=300", None, 300),
        ("from_seq=300", "512", 512),
        ("from_seq=300", "junk", 300),
        ("from_seq=junk", "junk", 0),
        ("from_seq=-5", None, 0),
        ("from_seq=%C2%B2", None, 0),
        ("from_seq=" + "9" * 40, None, SESSION_STRIDE),
        (f"from_seq={3 * SESSION_STRIDE + 512}", None, 512),
    ],
)
def test_where_a_stream_goes_on(query: str, header: str | None, place: int) -> None:
    assert resume_after(request(query, last_event_id=header)) == place


def test_numbers_have_bounds_and_a_default() -> None:
    assert query_integer(request(), "limit", 50, minimum=1, maximum=500) == 50
    assert query_integer(request("limit="), "limit", 50, minimum=1, maximum=500) == 50
    assert query_integer(request("limit=007"), "limit", 50, minimum=1, maximum=500) == 7
    for bad in ("0", "501", "1.0", "+1", " 1", "x", "9" * 30, "%D9%A3"):
        with pytest.raises(Refused):
            query_integer(request(f"limit={bad}"), "limit", 50, minimum=1, maximum=500)


def test_texts_are_bounded_and_printable() -> None:
    assert query_text(request("user=zo%C3%AB"), "user") == "zoë"
    for bad in ("a%00b", "a%0Ab", "x" * 257):
        with pytest.raises(Refused):
            query_text(request(f"user={bad}"), "user")


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("YES", True), ("0", False), ("", False)])
def test_switches(value: str, on: bool) -> None:
    assert query_flag(request(f"ids={value}"), "ids") is on
