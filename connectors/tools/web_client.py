"""One request of a web tool with its redirects, within all limits.

Each hop, the first one and each redirect, is checked by name against the run's allowed hosts and by address when it is
dialled. Redirects are followed here and not by a client library, because the rules are ours: at most five; 301 and 302
turn POST into GET and 303 everything but HEAD, 307 and 308 keep method and body; a hop to another origin keeps only
headers that cannot be credentials.

The body is read as a stream and reading ends at the limit, on the wire and after decompression alike, so neither an
endless body nor a decompression bomb costs more than the limit. No environment proxy is used: httpcore does not support
them. Each call has its own connections and closes them; nothing is shared between runs.

Not chosen: httpx's client, which would need its private pool replaced to dial checked addresses, and decompresses
without a limit; its URL type is used, so that the host that is checked is the host that is dialled.

Before: http.py, web_fetch.py. After: checked_network.py, decompression.py.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpcore
import httpx

from loomlog.connectors.http.trace_context import trace_headers
from loomlog.connectors.tools.checked_network import CheckedNetwork, RequestNotSent, Resolver, resolve_with_system
from loomlog.connectors.tools.decompression import create_decoder
from loomlog.connectors.tools.hosts import EXACT_PREFIX, canonical_host, is_host_allowed
from loomlog.connectors.tools.results import ToolCallRefused, encode_text

REQUEST_TIMEOUT_S = 30.0
"""Seconds for one request, from the first look-up to the last byte."""
REQUEST_BYTES = 256 * 1024
"""Maximum bytes of a request: URL, headers and body together."""
RESPONSE_BYTES = 256 * 1024
"""Maximum bytes of a response body, after decompression."""
MAX_REDIRECTS = 5
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
SAFE_METHODS = frozenset({"GET", "HEAD"})
CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "idempotency-key"})
"""Headers that are kept on a redirect to another origin. A list of headers to drop would miss the next X-Api-Key."""
USER_AGENT = "loomlog"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    method: str
    url: httpx.URL
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """Decompressed body, at most RESPONSE_BYTES."""
    is_truncated: bool
    """Whether the body was cut at the limit."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class WebClient:
    """HTTP client of the web tools.

    `private_hosts` may resolve to private addresses; the other options are for tests and private CAs.
    """

    def __init__(
        self,
        *,
        private_hosts: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolver = resolve_with_system,
        network: httpcore.AsyncNetworkBackend | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        follows_redirects: bool = True,
    ) -> None:
        """`follows_redirects` False: a redirect is the response."""
        self._follows_redirects = follows_redirects
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._timeout_s = timeout_s
        self._network = CheckedNetwork(private_hosts=private_hosts, resolve=resolve, network=network)

    async def send(self, request: WebRequest, allowed_hosts: Sequence[str]) -> WebResponse:
        """Return the last response. Raises ToolCallRefused for every failure, and RequestOutcomeUnknown when a request
        that is not safe to repeat may have been executed.
        """
        _require_size(request)
        hops = _RedirectChain(request, allowed_hosts, follows=self._follows_redirects)
        try:
            async with asyncio.timeout(self._timeout_s):
                async with httpcore.AsyncConnectionPool(
                    ssl_context=self._tls, network_backend=self._network, http1=True, http2=False
                ) as pool:
                    return await hops.follow(pool)
        except ToolCallRefused as reason:
            raise hops.to_refusal(str(reason), error=reason) from reason
        except TimeoutError as error:
            raise hops.to_refusal(f"It took longer than {self._timeout_s:g} s.", error=error) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            raise hops.to_refusal(f"The connection broke off: {_describe_error(error)}.", error=error) from error


def parse_web_url(text: str) -> httpx.URL:
    """Return an absolute http(s) URL with a canonical host. Raises ToolCallRefused for everything else."""
    encode_text(text, "The URL")
    try:
        url = httpx.URL(text)
        host = canonical_host(url.raw_host.decode("ascii"))
        port = url.port
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise RequestNotSent(f'"{text[:200]}" is no usable URL: {error}.') from error
    if url.scheme not in ("http", "https") or not host or not (port is None or 0 < port < 65536):
        raise RequestNotSent(f'"{text[:200]}" is no usable URL: expected is http:// or https:// and a host name.')
    if url.userinfo:
        raise RequestNotSent(
            "The URL holds a user name or password. Put credentials into an Authorization header instead."
        )
    return url.copy_with(host=host)


class RequestOutcomeUnknown(ToolCallRefused):
    """The request failed, and may have been executed nevertheless."""


class _RedirectChain:
    """A request with the redirects followed so far."""

    def __init__(self, request: WebRequest, allowed_hosts: Sequence[str], *, follows: bool) -> None:
        self._follows = follows
        self._initial_request = request
        self._allowed_hosts = allowed_hosts
        self._responses = 0

    async def follow(self, pool: httpcore.AsyncConnectionPool) -> WebResponse:
        request = self._initial_request
        while self._responses <= MAX_REDIRECTS:
            self._require_allowed_host(request.url)
            url = request.url
            target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
            headers = _build_headers(request)
            async with pool.stream(request.method, target, headers=headers, content=request.body or None) as response:
                self._responses += 1
                location = next((value for key, value in response.headers if key.lower() == b"location"), None)
                if response.status not in REDIRECT_STATUSES or location is None or not self._follows:
                    return await _read_response(response, has_body=request.method != "HEAD")
            request = _build_redirect(request, response.status, location.decode("latin-1"))
        raise ToolCallRefused(
            f"The server redirected more than {MAX_REDIRECTS} times; the last place was {_shorten_url(request.url)}."
        )

    def to_refusal(self, reason: str, *, error: Exception) -> ToolCallRefused:
        """Return the refusal with the message for the model."""
        # checked_network.py opens the connections and raises RequestNotSent; a ConnectError comes from TLS.
        certainly_not_sent = not self._responses and isinstance(error, RequestNotSent | httpcore.ConnectError)
        if self._initial_request.method in SAFE_METHODS or certainly_not_sent:
            return ToolCallRefused(
                f"{self._initial_request.method} {_shorten_url(self._initial_request.url)} failed. {reason}"
            )
        return RequestOutcomeUnknown(
            f"{self._initial_request.method} {_shorten_url(self._initial_request.url)} failed. {reason} It "
            "may have been carried out nevertheless: "
            "find out before sending it again."
        )

    def _require_allowed_host(self, url: httpx.URL) -> None:
        if is_host_allowed(url.raw_host.decode("ascii"), self._allowed_hosts):
            return
        via = " that the server redirected to" if self._responses else ""
        allowed = ", ".join(entry.removeprefix(EXACT_PREFIX) for entry in self._allowed_hosts) or "none"
        raise RequestNotSent(f'The host "{url.host}"{via} is not allowed for this run. Allowed hosts: {allowed}.')


def _build_redirect(request: WebRequest, status: int, location: str) -> WebRequest:
    try:
        joined = str(request.url.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolCallRefused(f'The server redirected to "{location[:200]}", which is no usable URL.') from error
    url = parse_web_url(joined)
    headers = request.headers
    if (url.scheme, url.raw_host, url.port) != (request.url.scheme, request.url.raw_host, request.url.port):
        headers = tuple((k, v) for k, v in headers if k.lower() in CROSS_ORIGIN_HEADERS)
    becomes_get = (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST")
    if not becomes_get:
        return replace(request, url=url, headers=headers)
    # The GET after the redirect has no body and is not a second attempt at the effect.
    headers = tuple((k, v) for k, v in headers if k.lower() not in ("content-type", "idempotency-key"))
    return WebRequest(method="GET", url=url, headers=headers)


def _build_headers(request: WebRequest) -> list[tuple[bytes, bytes]]:
    headers_by_name: Mapping[str, str] = {name.lower(): value for name, value in request.headers}
    own = [("Host", request.url.netloc.decode("ascii")), ("Accept-Encoding", "gzip, deflate"), ("Connection", "close")]
    if "user-agent" not in headers_by_name:
        own.append(("User-Agent", USER_AGENT))
    if "accept" not in headers_by_name:
        own.append(("Accept", "*/*"))
    if not request.body and request.method not in SAFE_METHODS:
        own.append(("Content-Length", "0"))
    if "traceparent" not in headers_by_name:
        own += trace_headers().items()
    return [(name.encode("ascii"), value.encode("utf-8")) for name, value in (*own, *request.headers)]


async def _read_response(response: httpcore.Response, *, has_body: bool) -> WebResponse:
    headers = tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in response.headers)
    encodings = [v.strip().lower() for k, value in headers if k.lower() == "content-encoding" for v in value.split(",")]
    body, cut = b"", False
    if has_body:
        body, cut = await _read_body(response, [e for e in encodings if e not in ("", "identity")])
    reason = response.extensions.get("reason_phrase", b"").decode("latin-1")
    return WebResponse(status=response.status, reason=reason, headers=headers, body=body, is_truncated=cut)


async def _read_body(response: httpcore.Response, encodings: list[str]) -> tuple[bytes, bool]:
    """Read to the end or to the limit, on the wire or decompressed; True when the body was longer."""
    unpack = create_decoder(encodings, RESPONSE_BYTES)
    received = 0
    async for chunk in response.aiter_stream():
        received += len(chunk)
        if unpack.feed(chunk) or received > RESPONSE_BYTES:
            return bytes(unpack.data), True
    unpack.finish()
    return bytes(unpack.data), False


def _require_size(request: WebRequest) -> None:
    size = len(str(request.url)) + len(request.body) + sum(len(k) + len(v.encode()) + 4 for k, v in request.headers)
    if size > REQUEST_BYTES:
        raise RequestNotSent(f"The request has {size} bytes; at most {REQUEST_BYTES} (URL, headers, body) can be sent.")


def _shorten_url(url: httpx.URL) -> str:
    return str(url)[:500]


def _describe_error(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
