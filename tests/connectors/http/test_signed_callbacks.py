"""One signed POST to an address that others chose: where it may go, what bounds it, how it is signed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http import signed_callbacks as module
from loomlog.connectors.http.signed_callbacks import (
    CallbackClient,
    callback_secrets,
    signature_headers,
    standard_headers,
)
from tests.connectors.tools.web_server import Names, Server, page, redirect, running

BODY = b'{"phase":"pre"}'


@asynccontextmanager
async def calling(server: Server, names: Names | None = None, *private: str) -> AsyncIterator[CallbackClient]:
    names = names or Names()
    made = CallbackClient(private_hosts=private, resolve=names.resolve, network=names)
    try:
        yield made
    finally:
        await made.close()


async def failure(callbacks: CallbackClient, url: str, *, timeout_s: float = 5.0, body: bytes = BODY) -> ConnectorError:
    with pytest.raises((Transient, Permanent)) as caught:
        await callbacks.post(url, body, {}, timeout_s=timeout_s)
    return caught.value


async def test_the_answer_comes_back_and_the_request_is_what_was_given() -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/hook?a=1"] = page('{"deny":{}}')
        url = f"http://hooks.example:{server.port}/hook?a=1"
        assert await callbacks.post(url, BODY, {"X-Loomlog-Hook": "h1"}, timeout_s=30) == b'{"deny":{}}'
        assert server.requests[0].endswith(BODY.decode())
        assert server.requests[0].startswith("POST /hook?a=1 HTTP/1.1\r\n")
        assert server.header("host") == f"hooks.example:{server.port}"
        assert server.header("x-loomlog-hook") == "h1"
        assert server.header("content-type") == "application/json"


async def test_nothing_is_an_answer() -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = b"HTTP/1.1 204 No Content\r\n\r\n"
        assert await callbacks.post(f"http://hooks.example:{server.port}/", BODY, {}, timeout_s=30) is None


async def test_connections_are_kept_for_the_next_call() -> None:
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        with_body = len(BODY)
        while (await reader.readuntil(b"\r\n\r\n")) and await reader.readexactly(with_body):
            writer.write(page("{}"))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    names = Names()
    callbacks = CallbackClient(resolve=names.resolve, network=names)
    try:
        for _ in range(3):
            url = f"http://hooks.example:{listener.sockets[0].getsockname()[1]}/"
            assert await callbacks.post(url, BODY, {}, timeout_s=30) == b"{}"
    finally:
        await callbacks.close()
        listener.close()
    assert (served, len(names.dialled)) == (1, 1)


async def test_who_is_cancelled_costs_nobody_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with model calls: at whatever turn of the event loop it happens."""
    monkeypatch.setattr(module, "CONNECTIONS", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while (await reader.readuntil(b"\r\n\r\n")) and await reader.readexactly(len(BODY)):
                writer.write(page("{}"))
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    names = Names()
    callbacks = CallbackClient(resolve=names.resolve, network=names)
    url = f"http://hooks.example:{listener.sockets[0].getsockname()[1]}/"
    try:
        for turns in range(60):
            cancelled = asyncio.create_task(callbacks.post(url, BODY, {}, timeout_s=30))
            for _ in range(turns):
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            assert await callbacks.post(url, BODY, {}, timeout_s=30) == b"{}", f"after {turns} turns of the loop"
    finally:
        await callbacks.close()
        listener.close()


# --- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.8", "192.168.1.1", "169.254.169.254", "100.64.0.1", "::1", "fd00::1", "0.0.0.0"]
)
async def test_a_name_that_leads_inside_is_never_dialled(address: str) -> None:
    names = Names({"hooks.example": [[address]]})
    async with running() as server, calling(server, names) as callbacks:
        error = await failure(callbacks, f"http://hooks.example:{server.port}/")
        assert names.dialled == []
        assert server.requests == []
    assert (error.kind, address in str(error)) == ("refused", False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://[::1]:{}/", "http://169.254.169.254:{}/latest"])
async def test_an_address_inside_is_no_way_around_the_names(url: str) -> None:
    names = Names({"127.0.0.1": [["127.0.0.1"]], "::1": [["::1"]], "169.254.169.254": [["169.254.169.254"]]})
    async with running() as server, calling(server, names) as callbacks:
        assert (await failure(callbacks, url.format(server.port))).kind == "refused"
        assert names.dialled == []


async def test_a_host_that_the_operator_opened_may_be_inside_but_never_the_metadata_address() -> None:
    names = Names({"hooks.example": [["127.0.0.1"], ["169.254.169.254"]]})
    async with running() as server, calling(server, names, "hooks.example") as callbacks:
        server.answers["/"] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
        url = f"http://hooks.example:{server.port}/"
        assert await callbacks.post(url, BODY, {}, timeout_s=30) is None
        assert (await failure(callbacks, url)).kind == "refused"
        assert names.dialled == ["127.0.0.1"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = redirect(f"http://127.0.0.1:{server.port}/inside", status)
        error = await failure(callbacks, f"http://hooks.example:{server.port}/")
        assert len(server.requests) == 1
    assert "not redirected" in str(error)


@pytest.mark.parametrize("url", ["ftp://hooks.example/", "hooks.example", "http:///x", "http://a:b@hooks.example/"])
async def test_what_is_no_address_is_refused(url: str) -> None:
    async with running() as server, calling(server) as callbacks:
        assert isinstance(await failure(callbacks, url), Permanent)


# --- what bounds it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "kind"), [("500 X", "unavailable"), ("429 X", "unavailable"), ("404 X", "refused")])
async def test_another_status_is_no_answer(status: str, kind: str) -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = page("{}", status=status)
        assert (await failure(callbacks, f"http://hooks.example:{server.port}/")).kind == kind


async def test_whoever_does_not_answer_in_time_is_not_waited_for() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = say_nothing
        error = await failure(callbacks, f"http://hooks.example:{server.port}/", timeout_s=0.05)
    assert (error.kind, str(error)) == ("timeout", "no answer within 0.05 s")


async def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESPONSE_BYTES", 1_000)
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = page("x" * 1_001)
        assert "longer than 1000" in str(await failure(callbacks, f"http://hooks.example:{server.port}/"))


async def test_a_packed_answer_is_not_unpacked() -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = page("x", "Content-Encoding: gzip")
        assert "packed" in str(await failure(callbacks, f"http://hooks.example:{server.port}/"))


async def test_too_large_a_request_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_BYTES", 10)
    async with running() as server, calling(server) as callbacks:
        assert "15 bytes" in str(await failure(callbacks, f"http://hooks.example:{server.port}/"))
        assert server.requests == []


async def test_a_connection_that_breaks_off_is_transient_and_names_no_address() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = hang_up
        error = await failure(callbacks, f"http://hooks.example:{server.port}/")
    assert (error.kind, "127.0.0.1" in str(error)) == ("network", False)


# --- how it is signed ------------------------------------------------------------------------------------------------


def test_a_signature_is_the_one_that_openssl_computes() -> None:
    # printf '1700000000.{"phase":"pre"}' | openssl dgst -sha256 -hmac topsecret, and the body alone.
    assert signature_headers(BODY, ["topsecret"], 1_700_000_000) == {
        "X-Loomlog-Signature": "t=1700000000,v1=19601f0445bee5c9ab298bfeccc8bea66cf229ae19040be3902c40c21240f50a",
        "X-Loomcycle-Signature": "75b3752fd08de529e788c91d7d3a04ab7392f67897363d43d322a042f32318b0",
    }


def test_while_a_key_is_rotated_both_sign() -> None:
    timed = signature_headers(BODY, ["new", "old"], 5)["X-Loomlog-Signature"]
    assert timed.split(",")[1:] == [
        signature_headers(BODY, [secret], 5)["X-Loomlog-Signature"].split(",")[1] for secret in ("new", "old")
    ]


def test_without_a_secret_nothing_is_signed() -> None:
    assert signature_headers(BODY, [], 5) == {}


def test_every_name_has_a_secret_of_its_own_that_never_changes() -> None:
    key = SecretKey(keys=(bytes(range(32)),))
    names = [("t", "ops", "a"), ("t", "ops", "b"), ("u", "ops", "a"), ("", "ops", "a"), ("t", "op", "sa")]
    assert len({callback_secrets(key, *name) for name in names}) == len(names)
    # It is kept by whoever registered the hook, so a change of the derivation breaks everybody's check.
    assert callback_secrets(key, "t", "ops", "a") == (
        "b45c8323d547b1f698f26f862c2586b7500a8206dccca716cda7f5ca2f40ed3a",
    )


def test_without_a_key_there_is_no_secret() -> None:
    assert callback_secrets(None, "t", "ops", "a") == ()


# --- callbacks at the end of a run -----------------------------------------------------------------------------------

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""With id, time and body of the example of Standard Webhooks."""


def test_the_standard_signature_is_that_of_its_example() -> None:
    headers = standard_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', [STANDARD_SECRET, "plain"], 1_614_265_330
    )
    first, second = headers["webhook-signature"].split(" ")
    assert first == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert second.startswith("v1,")
    assert second != first
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"


def test_without_a_secret_there_is_no_standard_signature() -> None:
    assert set(standard_headers("m", BODY, [], 1)) == {"webhook-id", "webhook-timestamp"}
    with pytest.raises(ValueError, match="continues with base64"):
        standard_headers("m", BODY, ["whsec_?"], 1)


async def test_a_notification_returns_the_status_and_reads_no_body() -> None:
    async with running() as server, calling(server) as callbacks:
        server.answers["/"] = b"HTTP/1.1 202 Accepted\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
        url = f"http://hooks.example:{server.port}/"
        assert await callbacks.notify(url, BODY, {"webhook-id": "m"}, timeout_s=30) == 202
        assert server.header("webhook-id") == "m"
        server.answers["/"] = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(Transient) as caught:
            await callbacks.notify(url, BODY, {}, timeout_s=30)
        assert caught.value.status == 500
