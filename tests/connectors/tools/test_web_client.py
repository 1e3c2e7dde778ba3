import asyncio
import datetime
import gzip
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loomlog.connectors.http.trace_context import outgoing_traceparent
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import (
    REQUEST_BYTES,
    RESPONSE_BYTES,
    WebClient,
    WebRequest,
    WebResponse,
    parse_web_url,
)
from tests.connectors.tools.web_server import PUBLIC, Names, Server, page, redirect, running

ALLOWED = ("site.example",)


def request(
    server: Server, path: str = "/", *, method: str = "GET", host: str = "site.example", **more: object
) -> WebRequest:
    return WebRequest(method=method, url=parse_web_url(f"http://{host}:{server.port}{path}"), **more)  # type: ignore[arg-type] # passed on


async def exchanged(asked: WebRequest, *allowed: str, names: Names | None = None, **options: object) -> WebResponse:
    names = names or Names()
    web = WebClient(resolve=names.resolve, network=names, **options)  # type: ignore[arg-type] # passed on
    async with asyncio.timeout(30):
        return await web.send(asked, allowed or ALLOWED)


async def refusal(asked: WebRequest, *allowed: str, names: Names | None = None, **options: object) -> str:
    with pytest.raises(ToolCallRefused) as caught:
        await exchanged(asked, *allowed, names=names, **options)
    return str(caught.value)


async def test_a_request_says_what_it_should_and_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with running() as server:
        server.answers["/a?b=c"] = page("hello", "X-One: 1", "X-One: 2")
        response = await exchanged(request(server, "/a?b=c", headers=(("X-Two", "2"),)))
        assert (response.status, response.reason, response.body, response.is_truncated) == (200, "OK", b"hello", False)
        assert [value for name, value in response.headers if name == "X-One"] == ["1", "2"]
        assert server.requests[0].startswith("GET /a?b=c HTTP/1.1\r\n")
        assert server.header("host") == f"site.example:{server.port}"
        assert server.header("x-two") == "2"
        assert server.header("user-agent") == "loomlog"


async def test_a_traced_call_carries_its_trace_context() -> None:
    async with running() as server:
        server.answers["/a"] = page("hello")
        token = outgoing_traceparent.set("00-aa-bb-01")
        await exchanged(request(server, "/a"))
        outgoing_traceparent.reset(token)
        assert server.header("traceparent") == "00-aa-bb-01"


async def test_a_host_that_is_not_allowed_is_never_dialled() -> None:
    async with running() as server:
        names = Names()
        text = await refusal(request(server, host="other.example"), names=names)
        assert 'host "other.example" is not allowed for this run. Allowed hosts: site.example' in text
        with pytest.raises(ToolCallRefused, match="Allowed hosts: none"):
            await WebClient(resolve=names.resolve, network=names).send(request(server), ())
        assert names.dialled == []


async def test_a_redirect_to_a_host_that_is_not_allowed_is_refused() -> None:
    async with running() as server:
        server.answers["/"] = redirect(f"http://other.example:{server.port}/")
        text = await refusal(request(server))
        assert '"other.example" that the server redirected to is not allowed' in text
        assert len(server.requests) == 1


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async with running() as server:
        names = Names({"intra.example": [["127.0.0.1"]], "127.0.0.1": [["127.0.0.1"]]})
        server.answers["/name"] = redirect(f"http://intra.example:{server.port}/secret")
        server.answers["/number"] = redirect(f"http://127.0.0.1:{server.port}/secret")
        server.answers["/secret"] = page("secret")
        for path in ("/name", "/number"):
            assert "has no public address" in await refusal(request(server, path), "*", names=names)
        assert names.dialled == [PUBLIC, PUBLIC]
        assert not [seen for seen in server.requests if "/secret" in seen]


async def test_a_name_that_is_rebound_between_two_hops_is_refused() -> None:
    async with running() as server:
        names = Names({"site.example": [[PUBLIC], ["127.0.0.1"]]})
        server.answers["/"] = redirect("/again")
        assert "has no public address" in await refusal(request(server), names=names)
        assert names.dialled == [PUBLIC]


async def test_a_private_host_is_reached_when_the_operator_opened_it() -> None:
    async with running() as server:
        names = Names({"intra.example": [["127.0.0.1"]]})
        server.answers["/"] = page("inside")
        asked = request(server, host="intra.example")
        assert (
            await exchanged(asked, "intra.example", names=names, private_hosts=("Intra.Example.",))
        ).body == b"inside"


async def test_five_redirects_are_followed_and_a_sixth_is_not() -> None:
    async with running() as server:
        for step in range(7):
            server.answers[f"/{step}"] = redirect(f"/{step + 1}")
        server.answers["/7"] = page("end")
        assert (await exchanged(request(server, "/2"))).body == b"end"
        assert "more than 5 times" in await refusal(request(server, "/1"))


@pytest.mark.parametrize(
    ("status", "method", "after"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (302, "PUT", "PUT"),
        (303, "HEAD", "HEAD"),
    ],
)
async def test_the_method_after_a_redirect(status: int, method: str, after: str) -> None:
    async with running() as server:
        server.answers["/"] = redirect("/next", status)
        server.answers["/next"] = page("")
        body = b"" if method == "HEAD" else b"payload"
        headers = (("Content-Type", "text/x"), ("Idempotency-Key", "k"))
        await exchanged(request(server, method=method, body=body, headers=headers))
        assert server.requests[-1].startswith(f"{after} /next ")
        keeps = after == method
        assert server.requests[-1].endswith("payload") == (keeps and bool(body))
        assert server.header("idempotency-key") == ("k" if keeps else None)
        assert server.header("content-type") == ("text/x" if keeps else None)


async def test_credentials_stay_with_their_origin() -> None:
    async with running() as server:
        server.answers["/same"] = redirect("/end", 307)
        server.answers["/other"] = redirect(f"http://other.example:{server.port}/end", 307)
        server.answers["/end"] = page("")
        headers = (("Authorization", "a"), ("X-Api-Key", "b"), ("Accept-Language", "de"))
        await exchanged(request(server, "/same", headers=headers))
        assert server.header("authorization") == "a"
        await exchanged(request(server, "/other", headers=headers), "site.example", "other.example")
        assert server.header("authorization") is None
        assert server.header("x-api-key") is None
        assert server.header("accept-language") == "de"


@pytest.mark.parametrize("location", ["ftp://site.example/", "http://user:pw@site.example/", "http://", "http://a b/"])
async def test_a_redirect_to_no_usable_url_is_refused(location: str) -> None:
    async with running() as server:
        server.answers["/"] = redirect(location)
        assert "failed" in await refusal(request(server))


async def test_a_body_of_exactly_the_cap_is_whole_and_one_byte_more_is_cut() -> None:
    async with running() as server:
        server.answers["/fits"] = page(b"x" * RESPONSE_BYTES)
        server.answers["/over"] = page(b"x" * (RESPONSE_BYTES + 1))
        fits, over = await exchanged(request(server, "/fits")), await exchanged(request(server, "/over"))
        assert (len(fits.body), fits.is_truncated) == (RESPONSE_BYTES, False)
        assert (len(over.body), over.is_truncated) == (RESPONSE_BYTES, True)


async def test_an_endless_body_is_read_no_further_than_the_cap() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with running() as server:
        server.answers["/"] = endless
        response = await exchanged(request(server))
        assert (len(response.body), response.is_truncated) == (RESPONSE_BYTES, True)
        # What the kernel's buffers of both ends took on top is not ours to bound.
        assert sent < RESPONSE_BYTES + 16 * 1024 * 1024


async def test_a_decompression_bomb_is_cut_at_the_cap() -> None:
    async with running() as server:
        server.answers["/"] = page(gzip.compress(bytes(30_000_000)), "Content-Encoding: gzip")
        response = await exchanged(request(server))
        assert (len(response.body), response.is_truncated) == (RESPONSE_BYTES, True)


async def test_an_endless_packed_body_that_unpacks_to_nothing_is_bounded_on_the_wire() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10])
        while not writer.is_closing():
            # Stored blocks of length zero.
            writer.write(b"\0\0\0\xff\xff" * 10_000)
            await writer.drain()

    async with running() as server:
        server.answers["/"] = endless
        response = await exchanged(request(server))
        assert (response.body, response.is_truncated) == (b"", True)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    await writer.drain()
    async with asyncio.timeout(30):
        await reader.read()


async def test_a_slow_body_ends_with_the_time_and_says_what_may_have_happened() -> None:
    async with running() as server:
        server.answers["/"] = hang
        read = await refusal(request(server), timeout_s=0.1)
        assert read.endswith(f"GET http://site.example:{server.port}/ failed. It took longer than 0.1 s.")
        sent = await refusal(request(server, method="POST"), timeout_s=0.1)
        assert sent.endswith("It may have been carried out nevertheless: find out before sending it again.")


async def test_a_connection_that_breaks_off_is_told() -> None:
    async with running() as server:
        server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"
        server.answers["/rubbish"] = b"rubbish\r\n\r\n"
        assert "broke off" in await refusal(request(server))
        assert "carried out nevertheless" in await refusal(request(server, "/rubbish", method="PATCH"))


async def test_a_post_that_never_left_is_told_apart_from_one_that_may_have_arrived() -> None:
    async with running() as server:
        names = Names({"gone.example": [[]]})
        assert "carried out" not in await refusal(request(server, method="POST", host="other.example"))
        never = await refusal(request(server, method="POST", host="gone.example"), "*", names=names)
        assert "could not be resolved" in never
        assert "carried out" not in never
        server.answers["/"] = redirect("http://elsewhere.example/", 307)
        assert "carried out nevertheless" in await refusal(request(server, method="POST"))
        server.answers["/"] = page(b"\x1b", "Content-Encoding: br")
        assert "carried out nevertheless" in await refusal(request(server, method="POST"))


async def test_a_request_over_its_bound_is_not_sent() -> None:
    async with running() as server:
        assert "at most 262144" in await refusal(request(server, method="POST", body=b"x" * REQUEST_BYTES))
        assert server.requests == []


async def test_a_head_answer_has_no_body() -> None:
    async with running() as server:
        server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n"
        assert (await exchanged(request(server, method="HEAD"))).body == b""


async def test_a_cancelled_exchange_closes_its_connection() -> None:
    answered, closed = asyncio.Event(), asyncio.Event()

    async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered.set()
        await hang(reader, writer)
        closed.set()

    async with running() as server, asyncio.timeout(30):
        server.answers["/"] = until_closed
        call = asyncio.create_task(exchanged(request(server)))
        await answered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await closed.wait()


@pytest.mark.parametrize(
    "text",
    [
        "site.example",
        "//site.example",
        "ftp://site.example",
        "file:///etc/passwd",
        "http://",
        "http://a b/",
        "http://site.example:0/",
        "http://site.example:99999/",
        "http://ex%61mple.com/",
        "http://[fe80::1%25eth0]/",
        "http://good.example\\@evil.example/",
        "http://user:pw@site.example/",
        "http://site.example/\ud800",
        "http://exa\u200bmple.com/",
    ],
)
def test_text_that_is_no_usable_url_is_refused(text: str) -> None:
    with pytest.raises(ToolCallRefused):
        parse_web_url(text)


def test_a_url_gets_its_canonical_host() -> None:
    assert str(parse_web_url("HTTP://Site.EXAMPLE.:80/a b")) == "http://site.example/a%20b"
    assert parse_web_url("http://[0:0::1]:8/").raw_host == b"::1"
    assert parse_web_url("http://[0:0::1]:8/").netloc == b"[::1]:8"
    assert parse_web_url("https://bücher.example/").raw_host == b"xn--bcher-kva.example"


# --- TLS -------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server for the host shows, and what a client that trusts it uses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "pair.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=made.public_bytes(pem).decode())


async def test_tls_names_and_checks_the_host_although_an_address_is_dialled(tmp_path: Path) -> None:
    shown, trusted = certificate(tmp_path, "site.example")
    asked_for: list[str | None] = []
    shown.sni_callback = lambda connection, name, context: asked_for.append(name)
    async with running(ssl=shown) as server:
        server.answers["/"] = page("safe")
        names = Names()
        url = parse_web_url(f"https://site.example:{server.port}/")
        response = await exchanged(WebRequest(method="GET", url=url), names=names, tls=trusted)
        assert response.body == b"safe"
        assert (asked_for, names.dialled) == (["site.example"], [PUBLIC])
        assert server.header("host") == f"site.example:{server.port}"


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    shown, trusted = certificate(tmp_path, "other.example")
    async with running(ssl=shown) as server:
        asked = WebRequest(method="POST", url=parse_web_url(f"https://site.example:{server.port}/"))
        text = await refusal(asked, tls=trusted)
        assert "certificate" in text.lower()
        assert "carried out" not in text
        assert server.requests == []


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    shown, _ = certificate(tmp_path, "site.example")
    async with running(ssl=shown) as server:
        asked = WebRequest(method="GET", url=parse_web_url(f"https://site.example:{server.port}/"))
        assert "certificate" in (await refusal(asked)).lower()
