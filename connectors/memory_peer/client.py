"""HTTP client of the memory routes of another installation: one request, one JSON answer, over kept connections.

The peer is not trusted. Each connection goes to an address that was checked when it was dialled
(tools/checked_network.py), redirects are not followed, request and answer are bounded, an exchange has a time limit. No
proxy of the environment is used. Errors name neither the address nor the key, nor anything the peer wrote.

Before: services/families/memory/remote_backend.py. After: httpcore.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import httpcore
import httpx

from loomlog.connectors.errors import Permanent, Transient, UnknownOutcome
from loomlog.connectors.http.connection_pool import ConnectionPools
from loomlog.connectors.tools.checked_network import CheckedNetwork, RequestNotSent, Resolver, resolve_with_system
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import USER_AGENT, parse_web_url

TIMEOUT_S = 10.0
"""Seconds for one exchange, from the wait for a connection to the last byte."""
REQUEST_BYTES = 4 * 1024 * 1024
"""Bytes of the body of a request: the largest value with every character escaped, and as much again."""
ANSWER_BYTES = 8 * 1024 * 1024
"""Bytes of an answer: all values of a scope of 1 MiB with every character escaped."""
CONNECTIONS = 50
"""Concurrent exchanges; further ones wait, each for at most its timeout."""
KEEPALIVE_CONNECTIONS = 10
KEEPALIVE_EXPIRY_S = 4.0
"""Seconds an idle connection is kept; below the 5 s after which common servers close one, so that we close it first."""
DEFAULT_API_VERSION = "v1"
HEADER_CHARACTERS_MAX = 1_000
READS = frozenset({"GET", "POST"})
"""Methods without an effect at a peer: POST is a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """An answer. `fields` is its JSON object; empty for 204 and for an error that is no object."""

    status: int
    fields: Mapping[str, Any]
    headers: Mapping[str, str]
    """By name in lower case."""

    @property
    def code(self) -> str:
        """Error code of the peer; empty without one. A code that is hidden in `refusal` counts."""
        code = self.fields.get("refusal") or self.fields.get("code")
        return code if isinstance(code, str) else ""


class PeerClient:
    """Client of one peer. `private_hosts` may be private addresses; `tls`, `resolve` and `network` are for tests."""

    def __init__(
        self,
        base_url: str,
        *,
        api_version: str = "",
        private_hosts: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolver = resolve_with_system,
        network: httpcore.AsyncNetworkBackend | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Raises Permanent(invalid) for an address that cannot be used."""
        try:
            url = parse_web_url(base_url)
        except ToolCallRefused:
            _refuse("its base_url is no usable address: expected http:// or https://, a host, and no user name in it")
        if url.query or url.fragment:
            _refuse("its base_url has a query or a fragment; expected an address that ends with a path")
        self._url = url
        self._root = url.path.rstrip("/") + "/" + quote(api_version or DEFAULT_API_VERSION, safe="") + "/_memory"
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._network = CheckedNetwork(private_hosts=private_hosts, resolve=resolve, network=network)
        self._pools = ConnectionPools(self._create_pool)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._timeout_s = timeout_s

    def _create_pool(self, number: int) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            network_backend=self._network,
            max_connections=1,
            max_keepalive_connections=1 if number < KEEPALIVE_CONNECTIONS else 0,
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
            http1=True,
            http2=False,
        )

    async def send(
        self,
        method: str,
        path: Sequence[str],
        *,
        key: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        """Return the answer to a request below /_memory, whatever its status; `path` is escaped part by part.

        Raises Transient when the peer was not reached or a read has no answer, UnknownOutcome when a write has none,
        Permanent(invalid) for what cannot be sent and for an answer that is none of this API.
        """
        content = b"" if body is None else json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
        if len(content) > REQUEST_BYTES:
            _refuse(f"the request has {len(content)} bytes, at most {REQUEST_BYTES} are sent")
        target = self._root + "".join("/" + quote(part, safe="") for part in path)
        target += "?" + urlencode(query) if query else ""
        sent = self._headers(key, content, headers or {})
        url = httpcore.URL(
            scheme=self._url.raw_scheme, host=self._url.raw_host, port=self._url.port, target=target.encode("ascii")
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(method, url, sent, content)
        except RequestNotSent as error:
            raise Transient(
                "it cannot be reached: its name is unknown, it refuses connections, or its address is private and the "
                "host is not in LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST",
                kind="network",
            ) from error
        except httpcore.ConnectError as error:  # of TLS: connections are opened by checked_network.py
            raise Transient("no secure connection: its certificate is not accepted", kind="network") from error
        except TimeoutError as error:
            raise _unanswered(method, f"no answer within {self._timeout_s:g} s") from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            # Without the driver's message: it may name an internal address.
            raise _unanswered(method, f"the connection broke off ({type(error).__name__})") from error

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        await self._pools.aclose()

    def _headers(self, key: str, content: bytes, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        named = {
            "Host": self._url.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **({"Authorization": f"Bearer {key}"} if key else {}),
            **({"Content-Type": "application/json", "Content-Length": str(len(content))} if content else {}),
            **more,
        }
        if not all(value.isascii() and value.isprintable() for value in named.values()):
            _refuse("its key has characters that no header takes, such as a line break")
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in named.items()]

    async def _exchange(
        self, method: str, url: httpcore.URL, headers: list[tuple[bytes, bytes]], content: bytes
    ) -> PeerAnswer:
        async with self._slots:
            number, pool = self._pools.acquire()
            is_sound = False
            try:
                async with pool.stream(method, url, headers=headers, content=content or None) as response:
                    status, received = response.status, _header_map(response.headers)
                    data = await _read_body(method, response)
                is_sound = True
            finally:
                self._pools.release(number, is_reusable=is_sound)
        return PeerAnswer(status=status, fields=_parse(method, status, data), headers=received)


def _header_map(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1")
        for name, value in headers
        if len(value) <= HEADER_CHARACTERS_MAX
    }


async def _read_body(method: str, response: httpcore.Response) -> bytes:
    encoding = next((value for name, value in response.headers if name.lower() == b"content-encoding"), b"")
    if encoding.strip().lower() not in (b"", b"identity"):
        raise _useless(method, "the answer is packed although that was not asked for")
    data = bytearray()
    async for chunk in response.aiter_stream():
        data += chunk
        if len(data) > ANSWER_BYTES:
            raise _useless(method, f"the answer is longer than {ANSWER_BYTES} bytes; ask for fewer entries")
    return bytes(data)


def _parse(method: str, status: int, data: bytes) -> Mapping[str, Any]:
    """Return the JSON object of an answer. Raises for a success without one."""
    if status == 204:
        return {}
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if 200 <= status < 300:
        raise _useless(method, "the answer is no JSON object: base_url may name something else than loomlog")
    return {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(message: str) -> NoReturn:
    raise Permanent(message, kind="invalid")


def _unanswered(method: str, message: str) -> Transient:
    """Return the error of a request that may have arrived."""
    return Transient(message, kind="unavailable") if method in READS else UnknownOutcome(message)


def _useless(method: str, message: str) -> Permanent | UnknownOutcome:
    """Return the error of an answer that says nothing; a write may have had its effect."""
    return Permanent(message, kind="invalid") if method in READS else UnknownOutcome(message)
