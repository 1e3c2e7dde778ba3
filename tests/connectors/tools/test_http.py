from typing import Any

import pytest

from loomlog.connectors.protocols import EffectClass, ToolResult
from loomlog.connectors.tools.http import HttpTool
from loomlog.connectors.tools.web_client import REQUEST_TIMEOUT_S, RESPONSE_BYTES, WebClient
from tests.connectors.tools.given import context
from tests.connectors.tools.web_server import Names, Server, page, running


async def called(server: Server, path: str = "/", *, key: str = "key-1", **arguments: Any) -> ToolResult:
    names = Names()
    tool = HttpTool(WebClient(resolve=names.resolve, network=names))
    arguments["url"] = f"http://site.example:{server.port}{path}"
    return await tool.call(arguments, context(allowed_hosts=("site.example",), idempotency_key=key))


async def test_the_answer_is_status_line_headers_empty_line_and_body() -> None:
    async with running() as server:
        server.answers["/"] = page("grün\n", "Content-Type: text/plain", status="201 Created")
        result = await called(server)
        assert not result.is_error
        assert result.text == "HTTP/1.1 201 Created\nContent-Length: 6\nContent-Type: text/plain\n\ngrün\n"


async def test_a_status_that_says_no_is_no_error() -> None:
    async with running() as server:
        result = await called(server, "/missing")
        assert not result.is_error
        assert result.text.startswith("HTTP/1.1 404 Not Found\n")


async def test_what_cannot_be_done_is_an_error_result() -> None:
    async with running() as server:
        for arguments, problem in (
            ({"method": "OPTIONS"}, '"method" is "OPTIONS", expected is one of GET, HEAD, PUT, DELETE, POST, PATCH'),
            ({"body": "x"}, "GET has no body"),
            ({"headers": {"Host": "other"}}, 'The header "Host" is set by the tool'),
            ({"headers": {"proxy-authorization": "x"}}, "is set by the tool"),
            ({"headers": {"A b": "x"}}, "is no header name"),
            ({"headers": {"A": "x\r\nHost: other"}}, "holds a line end"),
            ({"method": "POST", "body": "\ud800"}, "lone surrogate"),
            ({"verb": "GET"}, '"verb" is unknown'),
        ):
            result = await called(server, **arguments)
            assert result.is_error, arguments
            assert problem in result.text
        assert server.requests == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_that_changes_something_carries_the_calls_key(method: str) -> None:
    async with running() as server:
        await called(server, method=method)
        assert server.header("idempotency-key") == "key-1"
        await called(server, method=method, headers={"IDEMPOTENCY-KEY": "own"})
        assert server.header("idempotency-key") == "own"
        await called(server, method=method, key="")
        assert server.header("idempotency-key") is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_request_that_reads_carries_no_key(method: str) -> None:
    async with running() as server:
        await called(server, method=method)
        assert server.header("idempotency-key") is None


async def test_a_body_is_sent_as_utf_8() -> None:
    async with running() as server:
        await called(server, method="POST", body="grün", headers={"Content-Type": "text/plain"})
        assert server.requests[0].endswith("grün")
        assert server.header("content-length") == "5"
        await called(server, method="POST")
        assert server.header("content-length") == "0"


async def test_a_long_response_is_cut_and_says_so() -> None:
    async with running() as server:
        server.answers["/"] = page("ü" * RESPONSE_BYTES)
        text = (await called(server)).text
        assert text.endswith(f"ü\n[cut: only the first {RESPONSE_BYTES} bytes of the response are shown]")


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=ISO-8859-1", b"gr\xfcn", "grün"),
        ('text/plain; charset="windows-1252"', b"\x80", "€"),
        ("text/plain; charset=utf-16", "grün".encode("utf-16"), "grün"),
        ("text/plain; charset=punycode", b"abc", "abc"),
        ("text/plain; charset=zip", b"abc", "abc"),
        ("text/plain; charset=iso-8859-99", b"abc", "abc"),
        ("application/octet-stream", b"a\0b\xff", "a�b�"),
    ],
)
async def test_the_body_is_decoded_as_the_server_says_and_never_fails(
    content_type: str, body: bytes, text: str
) -> None:
    async with running() as server:
        server.answers["/"] = page(body, f"Content-Type: {content_type}")
        assert (await called(server)).text.partition("\n\n")[2] == text


async def test_a_server_cannot_break_the_form_of_the_answer() -> None:
    async with running() as server:
        server.answers["/"] = page("body", "X-One: \x85evil\x1b[31m")
        assert (await called(server)).text.endswith("\nX-One: Â\\x85evil\\x1b[31m\n\nbody")


def test_effect_classes_follow_the_method() -> None:
    tool = HttpTool(WebClient())
    assert tool.effect_class({}) is EffectClass.READ
    assert tool.effect_class({"method": None}) is EffectClass.READ
    expected = {
        "GET": EffectClass.READ,
        "HEAD": EffectClass.READ,
        "PUT": EffectClass.IDEMPOTENT,
        "DELETE": EffectClass.IDEMPOTENT,
        "POST": EffectClass.UNSAFE,
        "PATCH": EffectClass.UNSAFE,
        "get": EffectClass.UNSAFE,
        "OTHER": EffectClass.UNSAFE,
    }
    assert {method: tool.effect_class({"method": method}) for method in expected} == expected
    assert tool.timeout_s > REQUEST_TIMEOUT_S
