"""Messages over HTTP: each is one POST, answered by JSON or by server-sent events that end with the answer.

Every address is checked when it is dialled (connectors/tools/checked_network.py), nothing is redirected, and everything
read is bounded: a message, the whole of a stream, the number of its events. A server that answers 404 to a session has
lost it; nothing was carried out then.

Not chosen: the official client (decision 67); the stream of a GET, which would be a connection for each session that
says almost nothing: a list that changed is noticed in the answers to calls and when a session is opened.

Before: session.py. After: httpcore.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

import httpcore
import httpx

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.connection_pool import ConnectionPools
from loomlog.connectors.http.sse import EventParser, FrameTooLarge
from loomlog.connectors.mcp.frames import (
    FRAME_BYTES_MAX,
    STATELESS_META,
    STATELESS_REVISION,
    Answer,
    Params,
    ServerRefused,
    encode_notification,
    encode_request,
    parse_frame,
)
from loomlog.connectors.mcp.oauth import read_challenge
from loomlog.connectors.mcp.peer import AuthorizationNeeded, IncomingMessages, NotSent, SessionLost, TokenSource
from loomlog.connectors.tools.checked_network import CheckedNetwork, RequestNotSent, Resolver, resolve_with_system
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import USER_AGENT, parse_web_url

STREAM_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""Bytes of one answer with everything the server sends before it."""
STREAM_EVENTS_MAX = 10_000
"""Events before an answer: a server that only reports progress would be read for ever."""
KEEPALIVE_EXPIRY_S = 4.0
"""Seconds an idle connection is kept; below the 5 s after which common servers close one, so that we close it first."""
DRAIN_S = 0.2
"""Seconds for the end of a stream after its answer. One that stays open costs its connection."""
SESSION_HEADER = b"mcp-session-id"
SESSION_CHARACTERS_MAX = 1_000
TOKEN_MASK = b"[redacted:credential]"
"""What takes the place of a token that a server sends back: nothing that a run sees or the log has holds it."""
TOKENS_MASKED_MAX = 10
"""Tokens of a connection that are masked, the newest."""
NAMED_BY: Mapping[str, str] = {"tools/call": "name"}
"""Parameter that the header Mcp-Name repeats, by method."""


class HttpNetwork:
    """What all connections share: certificate authorities and the check of addresses."""

    def __init__(
        self,
        *,
        private_hosts: frozenset[str] = frozenset(),
        tls: ssl.SSLContext | None = None,
        resolve: Resolver = resolve_with_system,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """`private_hosts` may have private addresses; the rest is for tests."""
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._resolve = resolve
        self._network = CheckedNetwork(private_hosts=private_hosts, resolve=resolve, network=network)

    def with_private_host(self, host: str) -> "HttpNetwork":
        """Return a network for a host that the operator named, whose address may be a private one."""
        return HttpNetwork(private_hosts=frozenset({host}), tls=self._tls, resolve=self._resolve)

    def open_pool(self, number: int) -> httpcore.AsyncConnectionPool:
        """Return a pool of one connection."""
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            network_backend=self._network,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
            http1=True,
            http2=False,
        )


class HttpConnection:
    """A connection to one address with fixed headers (protocol Connection). `concurrency`: requests at a time."""

    def __init__(
        self,
        network: HttpNetwork,
        url: str,
        headers: Mapping[str, str],
        incoming: IncomingMessages,
        *,
        concurrency: int,
        tokens: TokenSource | None = None,
        remedy: str = "see `headers`",
    ) -> None:
        """`tokens`: where the bearer token of each request comes from; `remedy`: what a person does when the server
        refuses, for errors. Raises Permanent(refused) for an address that cannot be called.
        """
        self.revision = ""
        self.is_closed = False
        try:
            self._url = parse_web_url(url)
        except ToolCallRefused as reason:
            raise Permanent(str(reason), kind="refused") from reason
        self._target = httpcore.URL(
            scheme=self._url.raw_scheme, host=self._url.raw_host, port=self._url.port, target=self._url.raw_path
        )
        self._headers = headers
        self._incoming = incoming
        self._pools = ConnectionPools(network.open_pool)
        self._slots = asyncio.Semaphore(concurrency)
        self._ids = count(1)
        self._session_id = ""
        self._tokens = tokens
        self._remedy = remedy
        self._masked: list[bytes] = []
        self._replies: set[asyncio.Task[None]] = set()

    async def request(self, method: str, params: Params, *, timeout_s: float) -> dict[str, Any]:
        """Return the result. Raises ServerRefused, Transient and Permanent."""
        request_id = next(self._ids)
        if self.revision == STATELESS_REVISION:
            params = {**params, "_meta": {**STATELESS_META, **(params.get("_meta") or {})}}
        frame = encode_request(request_id, method, params)
        answer = await self._post(frame, self._protocol_headers(method, params), timeout_s, expects=request_id)
        if answer is None:
            raise Permanent(f"the server did not answer {method}", kind="invalid")
        return answer.require_result(method)

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification; that it is not taken does not matter."""
        with suppress(ConnectorError):
            await self._post(encode_notification(method, params), self._protocol_headers(method, params), 10.0)

    async def answer(self, frame: bytes) -> None:
        """Send the answer to a request of the server, besides the stream that it came in."""
        self._reply(frame)

    async def close(self) -> None:
        """Close the connections; requests under way fail. A session ends by its own timeout at the server."""
        self.is_closed = True
        await self._pools.aclose()

    def _protocol_headers(self, method: str, params: Params) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": self.revision} if self.revision else {}
        if self._session_id:
            headers["Mcp-Session-Id"] = self._session_id
        if self.revision == STATELESS_REVISION:
            headers["Mcp-Method"] = method
            if method in NAMED_BY:
                headers["Mcp-Name"] = str(params.get(NAMED_BY[method]))
        return headers

    async def _post(
        self, frame: bytes, headers: Mapping[str, str], timeout_s: float, *, expects: int | None = None
    ) -> Answer | None:
        if len(frame) > FRAME_BYTES_MAX:
            raise Permanent(f"the request has {len(frame)} bytes; at most {FRAME_BYTES_MAX} are sent", kind="invalid")
        try:
            async with asyncio.timeout(timeout_s):
                async with self._slots:
                    return await self._exchange_with_token(frame, headers, expects)
        except TimeoutError as error:
            raise Transient(f"the server did not answer within {timeout_s:g} s", kind="timeout") from error
        except RequestNotSent as reason:
            raise NotSent(str(reason)) from reason
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise NotSent(f"no connection to the server ({type(error).__name__})") from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            # Without the driver's message: it may name an internal address.
            raise Transient(f"the connection broke off ({type(error).__name__})", kind="broken_off") from error

    async def _exchange_with_token(
        self, frame: bytes, headers: Mapping[str, str], expects: int | None
    ) -> Answer | None:
        """Send a frame with a token; with a renewed one again when the server refuses the first, which did nothing."""
        token = await self._token()
        try:
            return await self._exchange(frame, {**headers, **_bearer(token)}, expects)
        except AuthorizationNeeded as needed:
            if not token or needed.status != 401:
                raise
            renewed = await self._token(rejected=token)
            if not renewed or renewed == token:
                raise
        return await self._exchange(frame, {**headers, **_bearer(renewed)}, expects)

    async def _token(self, rejected: str = "") -> str:
        if self._tokens is None:
            return ""
        token = await self._tokens.token(rejected)
        if token and token.encode() not in self._masked:
            self._masked = [*self._masked[1 - TOKENS_MASKED_MAX :], token.encode()]
        return token

    def _mask(self, data: bytes) -> bytes:
        for token in self._masked:
            data = data.replace(token, TOKEN_MASK)
        return data

    async def _exchange(self, frame: bytes, headers: Mapping[str, str], expects: int | None) -> Answer | None:
        sent = {
            "Host": self._url.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Content-Length": str(len(frame)),
            **self._headers,
            **headers,
        }
        raw = [(name.encode("ascii"), value.encode("utf-8")) for name, value in sent.items()]
        number, pool = self._pools.acquire()
        is_sound = False
        try:
            async with pool.stream("POST", self._target, headers=raw, content=frame) as response:
                answer, is_sound = await self._read(response, expects)
            return answer
        finally:
            self._pools.release(number, is_reusable=is_sound)

    async def _read(self, response: httpcore.Response, expects: int | None) -> tuple[Answer | None, bool]:
        """Return the answer, and whether the response was read to its end."""
        headers = {name.lower(): value for name, value in response.headers}
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise Permanent("the answer is packed although that was not asked for", kind="invalid")
        if not 200 <= response.status < 300:
            raise await self._error_of(response, kind)
        if self._session_id == "" and SESSION_HEADER in headers:
            self._session_id = _session_id(headers[SESSION_HEADER])
        if expects is None:
            return None, await _drain(response.aiter_stream())
        if kind == b"text/event-stream":
            return await self._read_events(response.aiter_stream(), expects)
        body = await _read_body(response)
        return (self._answer_in(body, expects) if body else None), True

    async def _read_events(self, chunks: AsyncIterator[bytes], expects: int) -> tuple[Answer | None, bool]:
        events = 0
        async with aclosing(_event_data(chunks)) as pieces:
            async for data in pieces:
                events += 1
                if events > STREAM_EVENTS_MAX:
                    raise Permanent(f"the server sent {STREAM_EVENTS_MAX} events and no answer", kind="invalid")
                answer = self._answer_in(data, expects)
                if answer is not None:
                    return answer, await _drain(chunks)
        return None, True

    def _answer_in(self, data: bytes, expects: int) -> Answer | None:
        message = parse_frame(self._mask(data))
        if not isinstance(message, Answer):
            reply = self._incoming.take(message)
            if reply is not None:
                self._reply(reply)
            return None
        if message.id != expects:
            raise Permanent(f"the server answered request {str(message.id)[:40]}, not {expects}", kind="invalid")
        return message

    def _reply(self, frame: bytes) -> None:
        """Send the answer to a request of the server, besides the stream that it came in."""
        task = asyncio.get_running_loop().create_task(self._send_reply(frame))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _send_reply(self, frame: bytes) -> None:
        with suppress(ConnectorError):
            await self._post(frame, self._protocol_headers("", {}), 10.0)

    async def _error_of(self, response: httpcore.Response, kind: bytes) -> ConnectorError:
        status = response.status
        if 300 <= status < 400:
            return Permanent(f"the server answered {status}: redirects are not followed", kind="refused", status=status)
        if status == 404 and self._session_id:
            return SessionLost("the server no longer knows the session")
        if status in (401, 403):
            raw = [value.decode("latin-1") for name, value in response.headers if name.lower() == b"www-authenticate"]
            challenge = read_challenge([self._mask(value.encode("latin-1")).decode("latin-1") for value in raw])
            if status == 401 or challenge.error == "insufficient_scope":
                return AuthorizationNeeded(challenge, status, self._remedy)
        if kind == b"application/json":
            with suppress(Permanent):
                message = parse_frame(self._mask(await _read_body(response)))
                if isinstance(message, Answer) and message.code:
                    return ServerRefused(
                        f"the server refused: {message.message} ({message.code})", message.code, message.data
                    )
        if status == 429 or status >= 500:
            return Transient(f"the server answered {status}", kind="unavailable", status=status)
        if status == 403:
            return Permanent(f"the server answered {status}: {self._remedy}", kind="unauthorised", status=status)
        return Permanent(f"the server answered {status}", kind="refused", status=status)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _session_id(value: bytes) -> str:
    text = value.decode("latin-1")
    if len(text) > SESSION_CHARACTERS_MAX or not text.isprintable() or not text.isascii():
        raise Permanent("the server's Mcp-Session-Id cannot be sent back", kind="invalid")
    return text


async def _read_body(response: httpcore.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > FRAME_BYTES_MAX:
            raise Permanent(f"the answer is longer than {FRAME_BYTES_MAX} bytes", kind="invalid")
    return bytes(body)


async def _event_data(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    parser, size = EventParser(FRAME_BYTES_MAX), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > STREAM_BYTES_MAX:
            raise Permanent(f"the server sent more than {STREAM_BYTES_MAX} bytes before its answer", kind="invalid")
        try:
            events = parser.feed(chunk)
        except FrameTooLarge as error:
            raise Permanent(f"the server sent {error}", kind="invalid") from error
        for event in events:
            yield event.data


async def _drain(chunks: AsyncIterator[bytes]) -> bool:
    """Read what is left, which should be nothing; return whether the response has ended."""
    size = 0
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(DRAIN_S):
            async for chunk in chunks:
                size += len(chunk)
                if size > FRAME_BYTES_MAX:
                    return False
            return True
    return False
