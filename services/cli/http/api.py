"""Client for the HTTP API: each call returns an answer or raises one of three failures; writes return their position.

Connection errors, statuses and the API's error format are converted to sentences here, so that no command has to know
HTTP. A proxy from the environment is not used for this machine's own addresses: a company's proxy cannot reach them.

Before: services/cli/runs/runs.py, services/cli/runs/review.py, services/cli/doctor/status.py. After: services/api.
"""

import asyncio
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx
import orjson

from loomlog.connectors.storage.private_files import create_file
from loomlog.services.cli.errors import CliError, Unreachable, UsageError

POSITION_HEADER = "x-loomlog-position"
CHUNK_BYTES = 256 * 1024
"""Chunk size in bytes for a file upload."""
CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 30.0
"""Seconds to wait for an answer; the API answers or reports the reason within 10 s, the rest is for
a loaded machine.
"""
STREAM_READ_TIMEOUT_S = 60.0
"""Seconds without data before a stream counts as lost: three of its keep-alives, which are sent every 20 s."""
PLAIN_HTTP = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS context for addresses without TLS: it trusts no certificate, and saves the 20 ms of reading the system's."""
LASTING_CODES = frozenset(
    {"runtime_paused", "tier_unavailable", "pin_unavailable", "credentials_off", "encryption_off"}
)
"""Codes of a 503 that an immediate retry does not change: an operator has to resume or set up something."""
MAX_ERROR_BYTES = 64 * 1024
"""Bytes read of an error response; the API's own are sentences, a proxy's may be pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A JSON answer, with the log position of the write it answers; the position is empty for reads."""

    value: Any
    position: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class ApiError(CliError):
    """The API refused the request. `code` is its stable reason code, `details` the whole answer."""

    def __init__(self, message: str, *, code: str, status: int, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = details


class ApiUnavailable(ApiError, Unreachable):
    """The API cannot do it at the moment: a service it depends on is down or not ready yet."""


class ApiClient:
    """HTTP client for one base address and one token. Use it as `async with ApiClient(...) as api`."""

    def __init__(self, base_url: str, token: str = "", *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._token = token
        host = urlsplit(self.base_url).hostname or ""
        self._client = httpx.AsyncClient(
            base_url=self.base_url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not _is_loopback(host),
            verify=ssl.create_default_context() if self.base_url.startswith("https:") else PLAIN_HTTP,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Any:
        """Return the JSON of a read. Raises Refusal or Unreachable."""
        return (await self._request("GET", path, params=_query_params(params))).value

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> ApiResponse:
        """Return the answer to a write. Raises Refusal or Unreachable."""
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        return await self._request("POST", path, json=body, headers=headers, timeout=timeout)

    async def put(self, path: str, body: Mapping[str, Any]) -> ApiResponse:
        """Return the answer to a write that replaces. Raises Refusal or Unreachable."""
        return await self._request("PUT", path, json=body)

    async def delete(self, path: str) -> ApiResponse:
        """Return the answer to a deletion. Raises Refusal or Unreachable."""
        return await self._request("DELETE", path)

    async def send_file(
        self, path: str, file: Path, *, timeout_s: float, params: Mapping[str, str | int] | None = None
    ) -> ApiResponse:
        """Upload a file, streamed from disk, and return the answer. Raises Refusal or Unreachable."""
        headers = {"content-type": "application/gzip"}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        return await self._request(
            "POST", path, content=_file_chunks(file), params=_query_params(params), headers=headers, timeout=timeout
        )

    async def download(self, path: str, target: Path) -> None:
        """Download a read's answer to a new file, streamed and flushed. Raises Refusal, Unreachable or OSError, and
        Failure when the transfer broke off.

        Only the file's owner may read it.
        """
        try:
            async with self.stream("GET", path) as response:
                with create_file(target) as file:
                    async for piece in response.aiter_bytes():
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
        except httpx.RemoteProtocolError as error:
            raise CliError(
                f"GET {self.base_url}{path} broke off ({error}): the api was stopped, or could not read all of it; "
                "its log says which."
            ) from error
        except httpx.HTTPError as error:
            raise self._unreachable_error(error) from error

    async def _request(self, method: str, path: str, **options: Any) -> ApiResponse:
        try:
            response = await self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreachable_error(error) from error
        if response.is_error:
            raise self._response_error(response, response.content[:MAX_ERROR_BYTES])
        try:
            value = orjson.loads(response.content) if response.content else None
        except orjson.JSONDecodeError as error:
            raise CliError(
                f"{self.base_url}{path} answered with {response.headers.get('content-type', 'no type')}, expected "
                "JSON: is that address really a loomlog API? LOOMLOG_BASE_URL names it."
            ) from error
        return ApiResponse(value=value, position=response.headers.get(POSITION_HEADER, ""), headers=response.headers)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Open an event stream. Raises Refusal when it is refused; httpx.HTTPError when the connection is lost."""
        timeout = httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=STREAM_READ_TIMEOUT_S)
        more: dict[str, Any] = {} if body is None else {"json": body}
        async with self._client.stream(method, path, headers=headers, timeout=timeout, **more) as response:
            if response.is_error:
                content = b""
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > MAX_ERROR_BYTES:
                        break
                raise self._response_error(response, content[:MAX_ERROR_BYTES])
            yield response

    def unreachable_error(self, error: httpx.HTTPError | None = None) -> Unreachable:
        """Return the failure for a connection that could not be made or kept."""
        return self._unreachable_error(error)

    def _unreachable_error(self, error: httpx.HTTPError | None) -> Unreachable:
        why = f" ({type(error).__name__}{f': {error}' if str(error) else ''})" if error is not None else ""
        return Unreachable(
            f"The API at {self.base_url} does not answer{why}. `loomlog status` shows what runs here, `loomlog up` "
            "starts it; LOOMLOG_BASE_URL names one elsewhere."
        )

    def _response_error(self, response: httpx.Response, content: bytes) -> CliError:
        try:
            details = orjson.loads(content)
        except orjson.JSONDecodeError:
            details = None
        if not isinstance(details, dict) or "error" not in details:
            return CliError(
                f"{response.request.method} {response.request.url} was answered with {response.status_code} "
                f"{response.reason_phrase}, and not in the way of a loomlog API. Is the address right? "
                "LOOMLOG_BASE_URL names it."
            )
        status, code = response.status_code, str(details.get("code", ""))
        text = str(details["error"]) or response.reason_phrase
        if status == 401:
            hint = "it does not know the token we show" if self._token else "it wants a token"
            return UsageError(
                f"The API at {self.base_url} does not let us in: {hint}. Set LOOMLOG_TOKEN (or LOOMLOG_AUTH_TOKEN)."
            )
        kind = ApiUnavailable if status == 503 and code not in LASTING_CODES else ApiError
        return kind(_as_sentence(text), code=code, status=status, details=details)


def quote_segment(text: str) -> str:
    """Quote a text as one path segment, so that a typed id never becomes another route."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


async def _file_chunks(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, CHUNK_BYTES):
            yield piece


def _query_params(params: Mapping[str, str | int] | None) -> dict[str, str | int]:
    return {name: value for name, value in (params or {}).items() if value != ""}


def _as_sentence(text: str) -> str:
    text = text.strip()
    # An id or a field name keeps its case, because people copy it.
    is_word = text.partition(" ")[0].rstrip(",;:").isalpha()
    return (text[:1].upper() + text[1:] if is_word else text) + ("" if text.endswith((".", "!", "?")) else ".")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
