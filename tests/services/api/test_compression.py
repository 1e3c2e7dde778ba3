"""Large JSON answers are compressed for clients that admit it; others, and small ones, stay as they are."""

import zlib

import pytest
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.compression import COMPRESSED_MIN_BYTES, THREAD_MIN_BYTES, compress
from loomlog.services.api.responses import json_response

LARGE = "runs and runs, " * COMPRESSED_MIN_BYTES


def request_of(accept_encoding: str) -> Request:
    headers = [(b"accept-encoding", accept_encoding.encode())] if accept_encoding else []
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers})


@pytest.mark.parametrize("text", [LARGE, LARGE * (THREAD_MIN_BYTES // len(LARGE) + 1)])
async def test_a_large_answer_is_compressed_and_says_so(text: str) -> None:
    response = json_response(text)
    before = bytes(response.body)
    await compress(request_of("br, gzip"), response)
    assert zlib.decompress(response.body, wbits=31) == before
    assert len(response.body) < len(before) / 10
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-length"] == str(len(response.body))
    assert response.headers["vary"] == "accept-encoding"
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("accept_encoding", ["", "br", "gzip;q=0", "identity"])
async def test_a_client_that_does_not_admit_it_gets_the_answer_as_it_is(accept_encoding: str) -> None:
    response = json_response(LARGE)
    before = bytes(response.body)
    await compress(request_of(accept_encoding), response)
    assert response.body == before
    assert "content-encoding" not in response.headers
    assert response.headers["vary"] == "accept-encoding", "a cache must keep both apart"


async def test_small_answers_and_answers_that_are_not_json_stay_as_they_are() -> None:
    small, bundle = json_response("runs"), Response(LARGE, media_type="application/gzip")
    for response in (small, bundle):
        before = bytes(response.body)
        await compress(request_of("gzip"), response)
        assert response.body == before
        assert "vary" not in response.headers
