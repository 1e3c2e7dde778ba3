"""One request of a web tool with its redirects, inside every bound.

Each hop, the first one and each redirect, is checked by name against the run's allowed hosts and by address when it is
dialled. Redirects are followed here and not by a client library, because the rules are ours: at most five; 301 and 302
turn POST into GET and 303 everything but HEAD, 307 and 308 keep method and body; a hop to another origin takes along
only headers that cannot be credentials.

The body is read while it arrives and reading ends at the cap, on the wire and after decompression alike, so neither an
endless body nor a decompression bomb costs more than the cap. No environment proxy is used: httpcore knows none. Each
call has its own connections and closes them; nothing is shared between runs.

Not chosen: httpx's client, which would need its private pool replaced to dial checked addresses, and unpacks without a
bound; its URL type is used, so that the host that is checked is the host that is dialled.

Before: http.py, web_fetch.py. After: checked_network.py, decompression.py.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpcore
import httpx

from loomlog.connectors.tools.answers import Refusal, encoded
from loomlog.connectors.tools.checked_network import CheckedNetwork, NotSent, Resolve, system_resolve
from loomlog.connectors.tools.decompression import unpacker
from loomlog.connectors.tools.hosts import EXACTLY, canonical_host, host_is_allowed

EXCHANGE_S = 30.0
"""For everything from the first look-up to the last byte."""
REQUEST_BYTES = 256 * 1024
"""URL, headers and body together."""
RESPONSE_BYTES = 256 * 1024
"""Of the body, unpacked."""
REDIRECTS = 5
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
SAFE_METHODS = frozenset({"GET", "HEAD"})
HEADERS_FOR_STRANGERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "idempotency-key"})
"""What another origin gets after a redirect. A list of what to drop would miss the next X-Api-Key."""
USER_AGENT = "loomlog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: httpx.URL
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """Unpacked, at most RESPONSE_BYTES."""
    cut: bool
    """There was more of the body."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class Web:
    """Makes exchanges. `private_hosts` may resolve to private addresses; the rest is for tests and private CAs."""

    def __init__(
        self,
        *,
        private_hosts: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = system_resolve,
        network: httpcore.AsyncNetworkBackend | None = None,
        timeout_s: float = EXCHANGE_S,
    ) -> None:
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._timeout_s = timeout_s
        hosts = frozenset(filter(None, map(canonical_host, private_hosts)))
        self._network = CheckedNetwork(private_hosts=hosts, resolve=resolve, network=network)

    async def exchange(self, request: Request, allowed_hosts: Sequence[str]) -> Response:
        """The last response. Raises Refusal for everything that can go wrong.

        Its text says when a request that is not safe to repeat may have been carried out.
        """
        _check_size(request)
        hops = _Hops(request, allowed_hosts)
        try:
            async with asyncio.timeout(self._timeout_s):
                async with httpcore.AsyncConnectionPool(
                    ssl_context=self._tls, network_backend=self._network, http1=True, http2=False
                ) as pool:
                    return await hops.follow(pool)
        except Refusal as reason:
            raise hops.failed(str(reason), error=reason) from reason
        except TimeoutError as error:
            raise hops.failed(f"It took longer than {self._timeout_s:g} s.", error=error) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            raise hops.failed(f"The connection broke off: {_one_line(error)}.", error=error) from error


def web_url(text: str) -> httpx.URL:
    """An absolute http(s) URL with a canonical host. Refuses everything else."""
    encoded(text, "The URL")
    try:
        url = httpx.URL(text)
        host = canonical_host(url.raw_host.decode("ascii"))
        port = url.port
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise NotSent(f'"{text[:200]}" is no usable URL: {error}.') from error
    if url.scheme not in ("http", "https") or not host or not (port is None or 0 < port < 65536):
        raise NotSent(f'"{text[:200]}" is no usable URL: expected is http:// or https:// and a host name.')
    if url.userinfo:
        raise NotSent("The URL holds a user name or password. Put credentials into an Authorization header instead.")
    return url.copy_with(host=host)


class _Hops:
    """A request on its way through redirects."""

    def __init__(self, request: Request, allowed_hosts: Sequence[str]) -> None:
        self._first = request
        self._allowed_hosts = allowed_hosts
        self._answers = 0

    async def follow(self, pool: httpcore.AsyncConnectionPool) -> Response:
        request = self._first
        while self._answers <= REDIRECTS:
            self._check_name(request.url)
            url = request.url
            target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
            headers = _sent_headers(request)
            async with pool.stream(request.method, target, headers=headers, content=request.body or None) as response:
                self._answers += 1
                location = next((value for key, value in response.headers if key.lower() == b"location"), None)
                if response.status not in REDIRECT_STATUSES or location is None:
                    return await _received(response, has_body=request.method != "HEAD")
            request = _redirected(request, response.status, location.decode("latin-1"))
        raise Refusal(f"The server redirected more than {REDIRECTS} times; the last place was {_short(request.url)}.")

    def failed(self, text: str, *, error: Exception) -> Refusal:
        """The reason as the model reads it."""
        # The connections themselves are checked_network.py's and raise NotSent; a ConnectError is TLS.
        certainly_not_sent = not self._answers and isinstance(error, NotSent | httpcore.ConnectError)
        if self._first.method in SAFE_METHODS or certainly_not_sent:
            return Refusal(f"{self._first.method} {_short(self._first.url)} failed. {text}")
        return Refusal(
            f"{self._first.method} {_short(self._first.url)} failed. {text} It may have been carried out nevertheless: "
            "find out before sending it again."
        )

    def _check_name(self, url: httpx.URL) -> None:
        if host_is_allowed(url.raw_host.decode("ascii"), self._allowed_hosts):
            return
        via = " that the server redirected to" if self._answers else ""
        allowed = ", ".join(entry.removeprefix(EXACTLY) for entry in self._allowed_hosts) or "none"
        raise NotSent(f'The host "{url.host}"{via} is not allowed for this run. Allowed hosts: {allowed}.')


def _redirected(request: Request, status: int, location: str) -> Request:
    try:
        joined = str(request.url.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise Refusal(f'The server redirected to "{location[:200]}", which is no usable URL.') from error
    url = web_url(joined)
    headers = request.headers
    if (url.scheme, url.raw_host, url.port) != (request.url.scheme, request.url.raw_host, request.url.port):
        headers = tuple((k, v) for k, v in headers if k.lower() in HEADERS_FOR_STRANGERS)
    becomes_get = (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST")
    if not becomes_get:
        return replace(request, url=url, headers=headers)
    # The request for the answer has no body and is no second attempt at the effect.
    headers = tuple((k, v) for k, v in headers if k.lower() not in ("content-type", "idempotency-key"))
    return Request(method="GET", url=url, headers=headers)


def _sent_headers(request: Request) -> list[tuple[bytes, bytes]]:
    given: Mapping[str, str] = {name.lower(): value for name, value in request.headers}
    own = [("Host", request.url.netloc.decode("ascii")), ("Accept-Encoding", "gzip, deflate"), ("Connection", "close")]
    if "user-agent" not in given:
        own.append(("User-Agent", USER_AGENT))
    if "accept" not in given:
        own.append(("Accept", "*/*"))
    if not request.body and request.method not in SAFE_METHODS:
        own.append(("Content-Length", "0"))
    return [(name.encode("ascii"), value.encode("utf-8")) for name, value in (*own, *request.headers)]


async def _received(response: httpcore.Response, *, has_body: bool) -> Response:
    headers = tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in response.headers)
    encodings = [v.strip().lower() for k, value in headers if k.lower() == "content-encoding" for v in value.split(",")]
    body, cut = b"", False
    if has_body:
        body, cut = await _body(response, [e for e in encodings if e not in ("", "identity")])
    reason = response.extensions.get("reason_phrase", b"").decode("latin-1")
    return Response(status=response.status, reason=reason, headers=headers, body=body, cut=cut)


async def _body(response: httpcore.Response, encodings: list[str]) -> tuple[bytes, bool]:
    """Reads until the end or until the cap is reached, on the wire or unpacked; True when there was more."""
    unpack = unpacker(encodings, RESPONSE_BYTES)
    received = 0
    async for chunk in response.aiter_stream():
        received += len(chunk)
        if unpack.feed(chunk) or received > RESPONSE_BYTES:
            return bytes(unpack.data), True
    unpack.finish()
    return bytes(unpack.data), False


def _check_size(request: Request) -> None:
    size = len(str(request.url)) + len(request.body) + sum(len(k) + len(v.encode()) + 4 for k, v in request.headers)
    if size > REQUEST_BYTES:
        raise NotSent(f"The request has {size} bytes; at most {REQUEST_BYTES} (URL, headers, body) can be sent.")


def _short(url: httpx.URL) -> str:
    return str(url)[:500]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
