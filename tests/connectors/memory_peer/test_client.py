"""Requests to the memory of another installation: where they may go, what bounds them, and answers that say nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient, UnknownOutcome
from loomlog.connectors.memory_peer import client as module
from loomlog.connectors.memory_peer.client import PeerClient
from tests.connectors.tools.web_server import Answer, Names, Server, page, redirect, running

KEY = "sk-very-secret"


@asynccontextmanager
async def peer(server: Server, *, path: str = "", names: Names | None = None, **more: Any) -> AsyncIterator[PeerClient]:
    names = names or Names()
    made = PeerClient(f"http://peer.example:{server.port}{path}", resolve=names.resolve, network=names, **more)
    try:
        yield made
    finally:
        await made.close()


async def failure(client: PeerClient, method: str = "GET", **more: Any) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        await client.send(method, ["scopes"], key=KEY, **more)
    text = str(caught.value)
    assert KEY not in text
    assert "peer.example" not in text
    assert "127.0.0.1" not in text
    return caught.value


async def test_a_request_has_the_key_the_body_and_escaped_names() -> None:
    async with running() as server, peer(server, path="/base/", api_version="v2") as client:
        path = "/base/v2/_memory/scopes/user/a%2Fb%25/keys/k%3F?limit=5&after=x+y"
        server.answers[path] = page('{"a": 1}', "ETag: 7")
        answer = await client.send(
            "PUT",
            ["scopes", "user", "a/b%", "keys", "k?"],
            key=KEY,
            query={"limit": 5, "after": "x y"},
            body={"value": "ü\ud83d\ude00"},
            headers={"Idempotency-Key": "once"},
        )
        assert (answer.status, answer.fields, answer.headers["etag"], answer.code) == (200, {"a": 1}, "7", "")
        assert server.header("authorization") == f"Bearer {KEY}"
        assert server.header("idempotency-key") == "once"
        assert json.loads(server.requests[0].partition("\r\n\r\n")[2]) == {"value": "ü😀"}


async def test_without_a_key_none_is_sent() -> None:
    async with running() as server, peer(server) as client:
        server.answers["/v1/_memory/scopes"] = page("{}")
        await client.send("GET", ["scopes"], key="")
        assert server.header("authorization") is None


async def test_an_error_has_its_code_also_within_a_refused_command_or_none() -> None:
    async with running() as server, peer(server) as client:
        for body, code in (
            ('{"code": "revision_conflict"}', "revision_conflict"),
            ('{"code": "command_refused", "refusal": "lease_lost"}', "lease_lost"),
            ("<html>proxy</html>", ""),
            ('{"code": 7}', ""),
            ("[1]", ""),
        ):
            server.answers["/v1/_memory/scopes"] = page(body, status="409 Conflict")
            answer = await client.send("GET", ["scopes"], key=KEY)
            assert (answer.status, answer.code) == (409, code)


async def test_nothing_is_an_answer_to_a_delete() -> None:
    async with running() as server, peer(server) as client:
        server.answers["/v1/_memory/scopes"] = b"HTTP/1.1 204 No Content\r\n\r\n"
        assert (await client.send("DELETE", ["scopes"], key=KEY)).fields == {}


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"a":"')
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (page("<html>hello</html>"), "no JSON object"),
        (page('{"a": NaN}'), "no JSON object"),
        (page('{"a": Infinity}'), "no JSON object"),
        (page("[" * 100_000), "no JSON object"),
        (page('{"a": ' + "9" * 5_000 + "}"), "no JSON object"),
        (page(b"\xff\xfe"), "no JSON object"),
        (page("null"), "no JSON object"),
        (page("{}", "Content-Encoding: gzip"), "packed"),
        (_endless, "longer than"),
        (_hang, "no answer within"),
        (b"SSH-2.0-OpenSSH\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "broke off"),
    ],
    ids=["html", "nan", "infinity", "deep", "digits", "bytes", "null", "packed", "endless", "hang", "ssh", "cut"],
)
async def test_an_answer_that_says_nothing_is_an_error_and_a_write_is_then_unknown(
    answer: Answer, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 300_000)
    async with running() as server, peer(server, timeout_s=0.5) as client:
        server.answers["/v1/_memory/scopes"] = answer
        read = await failure(client)
        assert expected in str(read)
        assert isinstance(read, Permanent | Transient)
        assert not isinstance(read, UnknownOutcome)
        write = await failure(client, "PUT", body={"value": 1})
        assert isinstance(write, UnknownOutcome)


async def test_a_redirect_is_not_followed() -> None:
    async with running() as server, peer(server) as client:
        server.answers["/v1/_memory/scopes"] = redirect(f"http://peer.example:{server.port}/else")
        assert (await client.send("GET", ["scopes"], key=KEY)).status == 302
        assert len(server.requests) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_private_addresses_are_closed_unless_the_operator_lists_the_host(address: str) -> None:
    async with running() as server:
        names = Names({"peer.example": [[address]]})
        async with peer(server, names=names) as client:
            error = await failure(client, "PUT", body={"value": 1})
            assert "LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST" in str(error)
            assert not isinstance(error, UnknownOutcome)
        assert names.dialled == []
        if address == "127.0.0.1":
            server.answers["/v1/_memory/scopes"] = page("{}")
            async with peer(server, names=names, private_hosts=["peer.example"]) as client:
                assert (await client.send("GET", ["scopes"], key=KEY)).status == 200


async def test_a_host_without_a_server_is_not_reached() -> None:
    async with running() as server:
        port = server.port
    client = PeerClient(f"http://peer.example:{port}", resolve=(names := Names()).resolve, network=names)
    error = await failure(client, "PUT", body={})
    assert "cannot be reached" in str(error)
    assert not isinstance(error, UnknownOutcome)
    await client.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "peer",
        "ftp://peer",
        "http://",
        "http://u:p@peer.example",
        "http://peer/?a=1",
        "http://peer/#x",
        "http://a:99999",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_when_the_client_is_made(url: str) -> None:
    with pytest.raises(Permanent, match="base_url") as caught:
        PeerClient(url)
    assert "u:p" not in str(caught.value)


async def test_what_cannot_be_sent_is_not_sent() -> None:
    async with running() as server, peer(server) as client:
        for key in ("a\nb", "ключ", "a\0"):
            with pytest.raises(Permanent, match="key has characters"):
                await client.send("GET", ["scopes"], key=key)
        with pytest.raises(Permanent, match="at most"):
            await client.send("PUT", ["scopes"], key=KEY, body={"value": "x" * module.REQUEST_BYTES})
        assert server.requests == []


async def test_a_cancelled_request_leaves_the_client_usable() -> None:
    async with running() as server, peer(server) as client:
        server.answers["/v1/_memory/scopes"] = _hang
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.send("GET", ["scopes"], key=KEY)
        server.answers["/v1/_memory/scopes"] = page("{}")
        assert (await client.send("GET", ["scopes"], key=KEY)).status == 200
