import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import ServerSentEvent
from loomlog.connectors.http.trace_context import outgoing_traceparent
from loomlog.connectors.models.provider_client import ProviderClient
from tests.connectors.models import fault_server
from tests.connectors.models.fault_server import Answer, FaultServer, Peer

FRAME = b"data: 1\n\n"


@asynccontextmanager
async def talking(answer: Answer, **changes: Any) -> AsyncIterator[tuple[ProviderClient, FaultServer]]:
    async with FaultServer(answer) as server:
        values: dict[str, Any] = {"header_timeout_s": 5.0, "idle_timeout_s": 5.0, "headers": {}} | changes
        wire = ProviderClient(provider="some", base_url=server.url, **values)
        try:
            async with asyncio.timeout(30):
                yield wire, server
        finally:
            await wire.close()


async def all_events(wire: ProviderClient, body: bytes = b"{}") -> list[ServerSentEvent]:
    return [event async for event in wire.stream_events("/turn", body, idempotency_key="r_1/1")]


async def failure_of(answer: Answer, **changes: Any) -> ConnectorError:
    async with talking(answer, **changes) as (wire, _):
        with pytest.raises(ConnectorError) as caught:
            await all_events(wire)
        return caught.value


async def test_a_turn_is_sent_and_its_events_arrive() -> None:
    async with talking(fault_server.stream([FRAME, b"data: 2\n\n"]), headers={"x-api-key": "k"}) as (wire, server):
        assert [event.data for event in await all_events(wire, b'{"a":1}')] == [b"1", b"2"]
        [request] = server.requests
        assert (request.method, request.path, request.json) == ("POST", "/turn", {"a": 1})
        assert request.headers["x-api-key"] == "k"
        assert request.headers["idempotency-key"] == "r_1/1"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["content-type"] == "application/json"


async def test_a_traced_call_carries_its_trace_context() -> None:
    async with talking(fault_server.stream([FRAME])) as (wire, server):
        token = outgoing_traceparent.set("00-aa-bb-01")
        assert await all_events(wire)
        outgoing_traceparent.reset(token)
        assert await all_events(wire)
        assert [request.headers.get("traceparent") for request in server.requests] == ["00-aa-bb-01", None]


async def test_an_idempotency_key_that_is_no_header_is_left_out() -> None:
    async with talking(fault_server.stream([FRAME])) as (wire, server):
        assert [event async for event in wire.stream_events("/turn", b"{}", idempotency_key="schön\r\n")]
        assert "idempotency-key" not in server.requests[0].headers


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with talking(fault_server.stream([FRAME])) as (wire, _):
        assert len(await all_events(wire)) == 1


async def test_a_connection_is_used_again_when_its_answer_was_read_to_the_end() -> None:
    async with talking(fault_server.stream([FRAME])) as (wire, server):
        for _ in range(3):
            assert len(await all_events(wire)) == 1
        assert server.connections == 1


async def test_draining_reads_what_is_left_so_that_the_connection_can_be_used_again() -> None:
    async with talking(fault_server.stream([FRAME, FRAME])) as (wire, server):
        for _ in range(2):
            events = wire.stream_events("/turn", b"{}")
            await anext(events)
            await wire.drain(events)
            await events.aclose()
        assert server.connections == 1


@pytest.mark.parametrize("finally_", ["stall", "reset", "close"])
async def test_draining_a_broken_rest_is_short_and_quiet(finally_: str) -> None:
    async with talking(fault_server.stream([FRAME], finally_=finally_)) as (wire, _):
        events = wire.stream_events("/turn", b"{}")
        await anext(events)
        await wire.drain(events)


async def test_leaving_the_events_closes_the_connection() -> None:
    async with talking(fault_server.stream([FRAME], finally_="stall")) as (wire, server):
        events = wire.stream_events("/turn", b"{}")
        await anext(events)
        await events.aclose()
        await server.closed_by_client.wait()


async def test_cancelling_the_reader_closes_the_connection() -> None:
    async with talking(fault_server.stream([FRAME], finally_="stall")) as (wire, server):
        got = asyncio.Event()

        async def read() -> None:
            async for _ in wire.stream_events("/turn", b"{}"):
                got.set()

        task = asyncio.create_task(read())
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.closed_by_client.wait()


async def test_silence_before_the_headers_is_a_header_timeout() -> None:
    failure = await failure_of(fault_server.silent, header_timeout_s=0.03)
    assert isinstance(failure, Transient)
    assert (failure.kind, str(failure)) == ("timeout", "some: no response headers within 0.03 s")


async def test_silence_in_the_middle_is_an_idle_timeout() -> None:
    failure = await failure_of(fault_server.stream([FRAME], finally_="stall"), idle_timeout_s=0.03)
    assert isinstance(failure, Transient)
    assert failure.kind == "timeout"
    assert str(failure) == "some: the stream was silent for 0.03 s after 9 bytes (idle timeout)"


async def test_pings_keep_a_slow_stream_alive() -> None:
    async def slow(peer: Peer) -> None:
        await peer.head(200, content_type="text/event-stream", transfer_encoding="chunked")
        for _ in range(6):
            await asyncio.sleep(0.1)
            await peer.chunk(b": ping\n\n")
        await peer.chunk(FRAME)
        await peer.send(b"0\r\n\r\n")

    async with talking(slow, idle_timeout_s=0.5) as (wire, _):
        assert len(await all_events(wire)) == 1


async def test_a_refused_connection_is_a_network_failure() -> None:
    async with FaultServer(fault_server.silent) as server:
        url = server.url
    wire = ProviderClient(provider="some", base_url=url, headers={})
    with pytest.raises(Transient, match=r"some: POST /turn: ") as caught:
        await all_events(wire)
    assert caught.value.kind == "network"
    await wire.close()


async def test_a_reset_before_the_headers_is_a_network_failure() -> None:
    failure = await failure_of(fault_server.resetting)
    assert (type(failure), failure.kind) == (Transient, "network")


async def closing(peer: Peer) -> None:
    peer.writer.close()


@pytest.mark.parametrize("end", [closing, fault_server.resetting])
async def test_a_kept_connection_that_is_closed_instead_of_an_answer_is_stale_and_the_next_call_opens_one(
    end: Answer,
) -> None:
    answers = iter([fault_server.stream([FRAME]), end, fault_server.stream([FRAME])])

    async def in_turn(peer: Peer) -> None:
        await next(answers)(peer)

    async with talking(in_turn) as (wire, server):
        await all_events(wire)
        with pytest.raises(Transient, match="kept from an earlier call") as caught:
            await all_events(wire)
        assert (caught.value.kind, server.connections) == ("stale", 1)
        assert [event.data for event in await all_events(wire)] == [b"1"]
        assert server.connections == 2


@pytest.mark.parametrize("finally_", ["reset", "close"])
async def test_a_connection_lost_in_the_middle_is_interrupted(finally_: str) -> None:
    failure = await failure_of(fault_server.stream([FRAME], finally_=finally_))
    assert (type(failure), failure.kind) == (Transient, "broken_off")
    assert "the answer broke off" in str(failure)


async def test_what_is_no_http_is_a_network_failure() -> None:
    async def nonsense(peer: Peer) -> None:
        await peer.send(b"220 smtp ready\r\n\r\n")
        peer.writer.close()

    assert (await failure_of(nonsense)).kind == "network"


async def test_a_frame_that_never_ends_is_interrupted() -> None:
    failure = await failure_of(fault_server.stream([b"data: " + b"x" * 3000]), max_frame_bytes=2000)
    assert (type(failure), failure.kind) == (Transient, "broken_off")
    assert "2000 bytes" in str(failure)


async def test_an_answer_that_never_ends_is_given_up() -> None:
    failure = await failure_of(fault_server.stream([FRAME] * 50), max_response_bytes=200)
    assert (type(failure), failure.kind) == (Permanent, "invalid")
    assert "exceeds 200 bytes" in str(failure)


async def test_an_unpacked_answer_counts_by_what_it_unpacks_to() -> None:
    bomb = gzip.compress(b": x\n" * 1_000_000)

    async def answer(peer: Peer) -> None:
        await peer.head(200, content_type="text/event-stream", content_encoding="gzip", content_length=str(len(bomb)))
        await peer.send(bomb)

    assert (await failure_of(answer, max_response_bytes=100_000)).kind == "invalid"


async def test_bytes_that_do_not_unpack_are_interrupted() -> None:
    async def answer(peer: Peer) -> None:
        await peer.head(200, content_type="text/event-stream", content_encoding="gzip", content_length="4")
        await peer.send(b"nope")

    assert (await failure_of(answer)).kind == "broken_off"


async def test_an_error_status_carries_the_providers_words_and_wait() -> None:
    failure = await failure_of(fault_server.error(429, "slow down", retry_after="7"))
    assert isinstance(failure, Transient)
    assert (str(failure), failure.retry_after_s) == ("some 429: slow down", 7.0)


async def test_an_error_whose_body_stalls_or_breaks_off_is_still_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.models.provider_client.ERROR_BODY_TIMEOUT_S", 0.03)

    def partly(after: Callable[[Peer], Any]) -> Answer:
        async def answer(peer: Peer) -> None:
            await peer.head(503, content_length="1000")
            await peer.send(b"down for a while")
            await after(peer)

        return answer

    async def closing(peer: Peer) -> None:
        peer.writer.close()

    assert str(await failure_of(partly(fault_server.silent))) == "some 503: down for a while"
    assert str(await failure_of(partly(closing))) == "some 503: down for a while"


async def test_of_a_huge_error_body_only_the_beginning_is_read() -> None:
    failure = await failure_of(fault_server.status(500, b"word " * 1_000_000, content_type="text/plain"))
    assert str(failure).startswith("some 500: word word")
    assert len(str(failure)) < 600


async def test_a_redirect_is_not_followed() -> None:
    failure = await failure_of(fault_server.status(302, b"", location="http://127.0.0.1:1/"))
    assert (type(failure), failure.kind, failure.status) == (Permanent, "invalid", 302)


async def test_one_json_document_instead_of_a_stream_is_unsupported() -> None:
    failure = await failure_of(fault_server.status(200, b'{"choices": []}', content_type="application/json"))
    assert (type(failure), failure.kind) == (Permanent, "unsupported")


async def test_an_error_document_with_status_200_is_that_error() -> None:
    body = json.dumps({"error": {"code": 429, "message": "slow down"}}).encode()
    failure = await failure_of(fault_server.status(200, body, content_type="application/json; charset=utf-8"))
    assert (type(failure), failure.kind) == (Transient, "rate_limited")


async def test_a_login_page_instead_of_a_stream_says_so() -> None:
    failure = await failure_of(fault_server.status(200, b"<html>", content_type="text/html"))
    assert (type(failure), failure.kind) == (Transient, "unavailable")
    assert "HTML page" in str(failure)


async def test_an_answer_that_is_refused_unread_is_closed() -> None:
    async def page(peer: Peer) -> None:
        await peer.head(200, content_type="text/html", content_length="1000")
        await peer.stall()

    async with talking(page) as (wire, server):
        with pytest.raises(Transient, match="HTML page"):
            await all_events(wire)
        await server.closed_by_client.wait()


async def test_a_gateway_that_echoes_the_request_and_the_key_leaks_neither() -> None:
    prompt = "a very private prompt that must never be part of any error message"

    async def echo(peer: Peer) -> None:
        body = b"cannot parse key " + peer.request.headers["x-api-key"].encode() + b": " + peer.request.body
        await peer.head(400, content_type="text/plain", content_length=str(len(body)))
        await peer.send(body)

    async with talking(echo, headers={"x-api-key": "sk-123"}, secret="sk-123") as (wire, _):
        with pytest.raises(Permanent) as caught:
            await all_events(wire, json.dumps({"prompt": prompt}).encode())
    assert "private" not in str(caught.value)
    assert "sk-123" not in str(caught.value)
    assert str(caught.value).startswith("some 400: cannot parse key [key]")


async def test_cookies_of_a_provider_are_not_kept() -> None:
    async with talking(fault_server.status(500, b"", set_cookie="a=b; Path=/")) as (wire, server):
        for _ in range(2):
            with pytest.raises(Transient):
                await all_events(wire)
        assert [request.headers.get("cookie") for request in server.requests] == [None, None]


async def test_json_is_fetched() -> None:
    async with talking(fault_server.status(200, b'{"data": [1]}', content_type="application/json")) as (wire, server):
        assert await wire.get_json("/models") == {"data": [1]}
        assert server.requests[0].method == "GET"


async def test_what_should_be_json_and_is_not_is_unavailable() -> None:
    async with talking(fault_server.status(200, b"<html>", content_type="text/html")) as (wire, _):
        with pytest.raises(Transient, match="GET /models gave 6 bytes that are not JSON"):
            await wire.get_json("/models")


async def test_a_closed_driver_refuses_calls() -> None:
    wire = ProviderClient(provider="some", base_url="http://127.0.0.1:1", headers={})
    await wire.close()
    with pytest.raises(Transient, match="the driver is closed"):
        await all_events(wire)
    await wire.close()


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1", "sk-ü", "sk-\x00"])
def test_a_key_that_is_no_header_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(Permanent, match="printable ASCII") as caught:
        ProviderClient(provider="some", base_url="http://127.0.0.1:1", headers={}, secret=key)
    assert "sk" not in str(caught.value).replace("some: ", "")


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com", "ftp://a/", "http://", "http://u:p@a/", "http://a/?key=1", "http://a:x/", "http://[a/"],
)
def test_a_base_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(Permanent, match="base_url") as caught:
        ProviderClient(provider="some", base_url=url, headers={})
    assert caught.value.kind == "invalid"


def httpx_errors() -> list[type[Exception]]:
    found = [value for value in vars(httpx).values() if isinstance(value, type) and issubclass(value, Exception)]
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", httpx_errors(), ids=lambda kind: kind.__name__)
async def test_no_error_of_httpx_leaks(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object, **__: object) -> None:
        error = kind.__new__(kind)
        Exception.__init__(error, "as httpx says")
        raise error

    wire = ProviderClient(provider="some", base_url="http://127.0.0.1:1", headers={})
    monkeypatch.setattr(wire._client, "send", failing)
    for call in (lambda: all_events(wire), lambda: wire.get_json("/models")):
        with pytest.raises(ConnectorError, match="as httpx says") as caught:
            await call()
        assert isinstance(caught.value.__cause__, kind)
    await wire.close()


@pytest.mark.parametrize("kind", httpx_errors(), ids=lambda kind: kind.__name__)
async def test_no_error_of_httpx_leaks_out_of_a_stream(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(self: httpx.Response, *_: object) -> AsyncIterator[bytes]:
        yield FRAME
        error = kind.__new__(kind)
        Exception.__init__(error, "as httpx says")
        raise error

    async with talking(fault_server.stream([FRAME])) as (wire, _):
        monkeypatch.setattr(httpx.Response, "aiter_bytes", failing)
        with pytest.raises(ConnectorError, match="as httpx says"):
            await all_events(wire)
