"""One provider over HTTP: a POST answered by a stream of frames, and questions answered by one JSON document.

Each driver has one Wire with HTTP/1.1 keep-alive connections of its own, as many as it has calls (connections.py): how
many that may be is the matter of the provider's queue in the runtime. Two times bound an answer: `header_timeout_s`
until the status line (connecting and sending included) and `idle_timeout_s` between any two pieces of the body, pings
included. How long a whole turn may take is the run's deadline, which cancels the stream. The texts of the two differ,
because they point to different faults: no headers is a provider that is down or queueing, silence in the middle is a
lost connection.

Not chosen: HTTP/2 (one lost connection would end every turn on it); httpx's own read timeout (it cannot tell the two
apart); following redirects (a key would go to an unconfigured host); the environment's proxies (settings are built
in main, once). A turn is never sent twice here, not even when the provider closed the kept connection it was sent on:
that is a failure of its own kind, which a run may try again once, and the log shows both (services/core/run).

Before: the drivers. After: json_lines.py, failures.py, connectors/http/sse.py.
"""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from copy import copy
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import httpx

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import FrameTooLarge, ServerSentEvent, server_events
from loomlog.connectors.http.trace_context import trace_headers
from loomlog.connectors.models import failures, untrusted_json
from loomlog.connectors.models.connections import PooledTransport
from loomlog.connectors.models.json_lines import json_lines

HEADER_TIMEOUT_S = 60.0
IDLE_TIMEOUT_S = 90.0
"""Both timeouts in seconds, as in the reference (2.4); a local model that thinks for minutes before its first byte gets
more by setting.
"""
CONNECT_TIMEOUT_S = 10.0
"""Seconds to connect; a host that does not accept by then is down, while a slow one accepts and is slow with the
headers.
"""
KEEPALIVE_S = 30.0
"""Seconds an idle connection is kept: longer than most tools take, so the next turn of a run can reuse it; shorter than
the 60 s at which load balancers close idle ones, because a turn sent into a closing connection fails.
"""
MAX_RESPONSE_BYTES = 64 << 20
"""Limit in bytes of an answer; the longest (128k tokens) with some 350 bytes of frame per token are 45 MB."""
MAX_FRAME_BYTES = 4 << 20
"""Some gateways send a whole tool call in one frame; the largest sensible one writes a 1 MiB file, escaped up to 2x.
A larger frame comes from a server that sends no line ends."""
MAX_JSON_BYTES = 8 << 20
"""Limit in bytes of a list of models; the largest known gateway's is under 1 MB."""
MAX_ERROR_BYTES = 64 << 10
"""Bytes read of an error body; the explanation is at its beginning."""
ERROR_BODY_TIMEOUT_S = 5.0
"""Seconds to wait for the explanation of a failure."""
PROBE_TIMEOUT_S = 10.0
"""Seconds for a probe; a provider that does not answer a small query by then cannot serve a turn either."""
DRAIN_TIMEOUT_S = 0.25
"""Seconds to wait for the end of a finished answer, so that its connection can be reused."""
NO_HEADERS: Mapping[str, str] = {}
_HEADER_SAFE = re.compile(r"[\x21-\x7e]*\Z")


class ProviderClient:
    """The connections to one provider. Opens nothing until the first call; `close` ends it.

    `secret` must not appear in any message. `reset_headers` lists rate limit headers that contain durations.
    `is_ndjson`: turns are lines of JSON instead of server-sent events. Raises Permanent(invalid) for a base URL or key
    that cannot be used.
    """

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        headers: Mapping[str, str],
        secret: str = "",
        header_timeout_s: float = HEADER_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        reset_headers: tuple[str, ...] = (),
        is_ndjson: bool = False,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        _check_base_url(provider, base_url)
        _check_key(provider, secret, "the variable it comes from")
        self.provider = provider
        self.host = httpx.URL(base_url).host
        self._base_url = base_url.rstrip("/")
        self._secret = secret
        self._key_headers: Mapping[str, str] = NO_HEADERS
        """Headers of one call's key; they override those of the client."""
        self._header_timeout_s = header_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._reset_headers = reset_headers
        self._is_ndjson = is_ndjson
        self._max_response_bytes = max_response_bytes
        self._max_frame_bytes = max_frame_bytes
        self._client = httpx.AsyncClient(
            # identity: a compressing proxy would delay text to fill its window
            headers={"user-agent": "loomlog", "accept-encoding": "identity", **headers},
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, header_timeout_s)),
            transport=PooledTransport(verify=_ssl_context(), keepalive_s=KEEPALIVE_S),
            follow_redirects=False,
            trust_env=False,
        )
        # No cookies: they would link the runs of different tenants at the provider.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def with_key(self, key: str, headers: Mapping[str, str]) -> "ProviderClient":
        """Return a client with the same connections and another key, sent in these headers; itself for an empty key.

        Raises Permanent(invalid) for a key that cannot be sent.
        """
        if not key:
            return self
        _check_key(self.provider, key, "the credential that came with the run")
        keyed = copy(self)
        keyed._secret = key  # private, but of its own copy
        keyed._key_headers = headers
        return keyed

    async def stream_events(
        self, path: str, body: bytes, *, idempotency_key: str = ""
    ) -> AsyncGenerator[ServerSentEvent]:
        """POST the JSON body and yield the events of the answer. Closes the connection on exit.

        Neither API documents the idempotency key; gateways in front of them do honour it, and others ignore it.
        """
        accept = "application/x-ndjson" if self._is_ndjson else "text/event-stream"
        async with self._open_response("POST", path, body, _post_headers(accept, idempotency_key)) as response:
            await self._check_content_type(response, body)
            framed = json_lines if self._is_ndjson else server_events
            events = framed(self._read_chunks(response, self._max_response_bytes), self._max_frame_bytes)
            async with aclosing(events):
                try:
                    async for event in events:
                        yield event
                except FrameTooLarge as error:
                    raise Transient(f"{self.provider}: the stream contained {error}", kind="broken_off") from error

    async def drain(self, events: AsyncGenerator[ServerSentEvent]) -> None:
        """Read the rest of an answer whose last event was seen, so that its connection returns to the pool.

        Stops after DRAIN_TIMEOUT_S and ignores failures: the turn is complete.
        """
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                async for _ in events:
                    pass
        except (TimeoutError, ConnectorError):
            pass

    async def get_json(self, path: str) -> Any:
        """Return the JSON answer to a GET."""
        return await self._request_json("GET", path, b"", {"accept": "application/json"})

    async def post_json(self, path: str, body: bytes, *, idempotency_key: str = "") -> Any:
        """Return the JSON answer to a POST of JSON."""
        return await self._request_json("POST", path, body, _post_headers("application/json", idempotency_key))

    async def probe(self, path: str) -> None:
        """Return when a GET is answered with JSON within PROBE_TIMEOUT_S."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self.get_json(path)
        except TimeoutError as error:
            raise Transient(
                f"{self.provider}: no answer to GET {path} within {PROBE_TIMEOUT_S:g} s", kind="timeout"
            ) from error

    async def _request_json(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        async with self._open_response(method, path, body, headers) as response:
            whole = await self._read_all(response, MAX_JSON_BYTES)
        try:
            return untrusted_json.decode(whole)
        except ValueError as error:
            raise Transient(
                f"{self.provider}: {method} {path} gave {len(whole)} bytes that are not JSON", kind="unavailable"
            ) from error

    def to_error(self, error: object, request_body: bytes) -> ConnectorError:
        """Return the failure for an error object inside a stream."""
        return failures.from_error_object(self.provider, error, secret=self._secret, request_body=request_body)

    async def close(self) -> None:
        with self._translate_errors("closing", is_streaming=True):
            await self._client.aclose()

    @asynccontextmanager
    async def _open_response(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Yield the answer once its headers have arrived with a success status; always closes it afterwards."""
        if self._client.is_closed:
            raise Transient(f"{self.provider}: the driver is closed; no call can begin", kind="unavailable")
        connecting = ConnectTrace()
        with self._translate_errors(f"{method} {path}", is_streaming=False, connect_trace=connecting):
            request = self._client.build_request(
                method,
                self._base_url + path,
                content=body,
                headers={**trace_headers(), **self._key_headers, **headers},
                extensions={"trace": connecting.trace},
            )
            try:
                async with asyncio.timeout(self._header_timeout_s):
                    response = await self._client.send(request, stream=True)
            except TimeoutError as error:
                raise Transient(
                    f"{self.provider}: no response headers within {self._header_timeout_s:g} s", kind="timeout"
                ) from error
        try:
            if response.status_code // 100 != 2:
                raise await self._status_error(response, body)
            yield response
        finally:
            with self._translate_errors("closing the answer", is_streaming=True):
                await response.aclose()

    async def _read_chunks(self, response: httpx.Response, limit: int) -> AsyncGenerator[bytes]:
        """Yield the body in pieces as they arrive, with limits on silence and size."""
        total = 0
        async with aclosing(_as_generator(response.aiter_bytes())) as pieces:
            while True:
                with self._translate_errors("the answer broke off", is_streaming=True):
                    try:
                        async with asyncio.timeout(self._idle_timeout_s):
                            piece = await anext(pieces)
                    except StopAsyncIteration:
                        return
                    except TimeoutError as error:
                        raise Transient(
                            f"{self.provider}: the stream was silent for {self._idle_timeout_s:g} s"
                            f" after {total} bytes (idle timeout)",
                            kind="timeout",
                        ) from error
                total += len(piece)
                if total > limit:
                    raise Permanent(
                        f"{self.provider}: the answer exceeds {limit} bytes and was abandoned", kind="invalid"
                    )
                yield piece

    async def _read_all(self, response: httpx.Response, limit: int) -> bytes:
        async with aclosing(self._read_chunks(response, limit)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def _status_error(self, response: httpx.Response, request_body: bytes) -> ConnectorError:
        return failures.from_status(
            self.provider,
            response.status_code,
            await self._read_error_body(response),
            headers=response.headers,
            now_s=time.time(),
            secret=self._secret,
            request_body=request_body,
            reset_headers=self._reset_headers,
        )

    async def _read_error_body(self, response: httpx.Response) -> bytes:
        """Return the readable part of a body that explains a failure. The status is already decisive, so a body that is
        too long, too slow or breaks off is used as far as it was received.
        """
        body = bytearray()
        try:
            async with (
                asyncio.timeout(ERROR_BODY_TIMEOUT_S),
                aclosing(self._read_chunks(response, MAX_ERROR_BYTES)) as chunks,
            ):
                async for chunk in chunks:
                    body += chunk
        except (TimeoutError, ConnectorError):
            pass
        return bytes(body)

    async def _check_content_type(self, response: httpx.Response, request_body: bytes) -> None:
        """Refuse a response that is certainly not an event stream; servers without a type, or with text/plain, do send
        events.
        """
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        status = response.status_code
        if media_type == "application/json" and not self._is_ndjson:  # one document is a line as well
            body = await self._read_error_body(response)
            if b'"error"' in body:
                with suppress(ValueError):
                    raise self.to_error(untrusted_json.fields(untrusted_json.decode(body)).get("error"), request_body)
            raise Permanent(
                f"{self.provider} {status}: answered with one JSON document where an event stream was requested;"
                " the server does not stream (the driver openai can do without: capabilities.streaming false)",
                kind="unsupported",
                status=status,
            )
        if media_type == "text/html":
            raise Transient(
                f"{self.provider} {status}: answered with an HTML page instead of a stream;"
                " check base_url and any proxy in between",
                kind="unavailable",
                status=status,
            )

    @contextmanager
    def _translate_errors(
        self, action: str, *, is_streaming: bool, connect_trace: "ConnectTrace | None" = None
    ) -> Iterator[None]:
        """Convert every error httpx can raise to ConnectorError."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError) as error:
            raise failures.from_transport(
                self.provider,
                error,
                action=action,
                is_streaming=is_streaming,
                secret=self._secret,
                is_reused_connection=connect_trace is not None and not connect_trace.has_connected,
            ) from error


class ConnectTrace:
    """Record whether a request opened a connection for itself. httpcore reports its steps to `trace`."""

    __slots__ = ("has_connected",)

    def __init__(self) -> None:
        self.has_connected = False

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self.has_connected = True


def _post_headers(accept: str, idempotency_key: str) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": accept}
    if idempotency_key and _HEADER_SAFE.match(idempotency_key):
        headers["idempotency-key"] = idempotency_key
    return headers


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return the context with the certificates every client trusts. Reading them takes 17 ms of CPU, so it is done once
    for all providers.
    """
    return httpx.create_ssl_context(trust_env=False)


def bearer_headers(key: str) -> dict[str, str]:
    """Return the header in which most APIs expect their key."""
    return {"authorization": f"Bearer {key}"} if key else {}


def _check_key(provider: str, key: str, origin: str) -> None:
    if not _HEADER_SAFE.match(key):
        raise Permanent(
            f"{provider}: the API key contains blanks or characters other than printable ASCII;"
            f" it cannot be sent in a header. Check {origin} for line ends and quotes",
            kind="invalid",
        )


def _check_base_url(provider: str, base_url: str) -> None:
    try:
        url = httpx.URL(base_url)
        urlsplit(base_url)  # it detects brackets that are never closed
    except (httpx.InvalidURL, ValueError) as error:
        raise Permanent(f"{provider}: base_url is not a URL: {error}", kind="invalid") from error
    if url.scheme not in ("http", "https") or not url.host or url.query or url.userinfo:
        raise Permanent(
            f"{provider}: base_url must be http(s)://host[:port][/path] without user, password and query;"
            f" the given one has scheme {url.scheme!r} and host {url.host!r}",
            kind="invalid",
        )


def _as_generator(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Return the iterator typed as a generator: httpx types its iterators loosely; they are generators and must be
    closed.
    """
    assert isinstance(pieces, AsyncGenerator)
    return pieces
