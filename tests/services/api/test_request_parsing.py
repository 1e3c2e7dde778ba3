import pytest
from starlette.requests import Request

from loomlog.projections.frames.frame import SESSION_STRIDE
from loomlog.services.api.request_parsing import query_flag, query_text, resume_after
from loomlog.services.core.refusals import Refused


def request(query: str = "", *, last_event_id: str | None = None) -> Request:
    headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
    return Request({"type": "http", "query_string": query.encode(), "headers": headers, "method": "GET", "path": "/"})


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


def test_texts_are_bounded_and_printable() -> None:
    assert query_text(request("user=zo%C3%AB"), "user") == "zoë"
    for bad in ("a%00b", "a%0Ab", "x" * 257):
        with pytest.raises(Refused):
            query_text(request(f"user={bad}"), "user")


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("YES", True), ("0", False), ("", False)])
def test_switches(value: str, on: bool) -> None:
    assert query_flag(request(f"ids={value}"), "ids") is on
