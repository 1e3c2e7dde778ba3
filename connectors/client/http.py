"""Requests to the HTTP API: each returns a response or raises an error of errors.py; writes return their position.

A proxy from the environment is not used for this machine's own addresses: a company's proxy cannot reach them.

Before: client.py, run_stream.py, services/cli/http/api.py. After: services/api.
"""

import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from loomlog.connectors.client.errors import InvalidResponse, Unreachable, api_error_class

POSITION_HEADER = "x-loomlog-position"
CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 30.0
"""Seconds to wait for a response; the API answers within 10 s, the rest is for a loaded machine."""
STREAM_READ_TIMEOUT_S = 60.0
"""Seconds without data before a stream counts as lost: three of its keep-alives, which are sent every 20 s."""
PLAIN_HTTP = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS context for addresses without TLS: it trusts no certificate, and saves the 20 ms of reading the system's."""
RECONNECT_TIMEOUT_S = 60.0
"""Seconds an API may be unreachable during a stream; a full restart takes seconds, a longer outage is reported."""
CLI_AGENT = "loomlog-cli"
"""User-Agent of the command line."""
MAX_ERROR_BYTES = 64 * 1024
"""Bytes read of an error response; the API's own are sentences, a proxy's may be pages."""


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON response, with the log position of the write it answers; the position is empty for reads."""

    value: Any
    position: str = ""
    headers: Any = None


class HttpClient:
    """HTTP client for one base address and one token: `async with HttpClient(...) as api`."""

    def __init__(self, base_url: str, token: str = "", *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.token = token
        self.reconnect_timeout_s = RECONNECT_TIMEOUT_S
        host = urlsplit(self.base_url).hostname or ""
        self.http = httpx.AsyncClient(
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
        await self.http.aclose()

    async def get(self, path: str, params: Mapping[str, str | int] | None = None, *, position: str = "") -> Any:
        """Return the JSON of a read, which includes the writes at `position` (of their responses, separated by commas).

        Raises ClientError.
        """
        return (await self.request("GET", path, params=query_params(params), headers=position_headers(position))).value

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> ApiResponse:
        """Return the response to a write. Raises ClientError."""
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        return await self.request("POST", path, json=body, headers=headers, timeout=timeout)

    async def put(self, path: str, body: Mapping[str, Any]) -> ApiResponse:
        """Return the response to a write that replaces. Raises ClientError."""
        return await self.request("PUT", path, json=body)

    async def delete(self, path: str) -> ApiResponse:
        """Return the response to a deletion. Raises ClientError."""
        return await self.request("DELETE", path)

    async def request(self, method: str, path: str, **options: Any) -> ApiResponse:
        """Send any request; `options` are those of httpx. Raises ClientError."""
        try:
            response = await self.http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self.unreachable_error(error) from error
        if response.is_error:
            raise self.response_error(response, response.content[:MAX_ERROR_BYTES])
        try:
            value = msgspec.json.decode(response.content) if response.content else None
        except msgspec.DecodeError as error:
            content_type = response.headers.get("content-type", "no content type")
            raise self.invalid_response(f"{self.base_url}{path} returned {content_type} instead of JSON") from error
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
        """Open an event stream. Raises ApiError when it is refused; httpx.HTTPError when the connection is lost."""
        timeout = httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=STREAM_READ_TIMEOUT_S)
        more: dict[str, Any] = {} if body is None else {"json": body}
        async with self.http.stream(method, path, headers=headers, timeout=timeout, **more) as response:
            if response.is_error:
                content = b""
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > MAX_ERROR_BYTES:
                        break
                raise self.response_error(response, content[:MAX_ERROR_BYTES])
            yield response

    # --- errors; the command line replaces them by its own
    # -------------------------------------------------------------

    def unreachable_error(self, error: httpx.HTTPError | None = None) -> Exception:
        """Return the error of a connection that could not be made or kept."""
        reason = f" ({type(error).__name__}{f': {error}' if str(error) else ''})" if error is not None else ""
        return Unreachable(f"The API at {self.base_url} does not answer{reason}.")

    def stream_lost_error(self, problem: str, run_id: str) -> Exception:
        """Return the error of a stream that could not be continued."""
        return Unreachable(f"{problem} The run {run_id} is not affected." if run_id else problem)

    def api_error(self, message: str, response: httpx.Response, details: Mapping[str, Any]) -> Exception:
        """Return the error of a refusal."""
        code, status = str(details.get("code", "")), response.status_code
        return api_error_class(status, code)(
            message, code=code, status=status, details=details, retry_after_s=retry_after_s(response)
        )

    def invalid_response(self, problem: str) -> Exception:
        """Return the error of a response that is not one of a loomlog API."""
        return InvalidResponse(f"{problem}: is that the address of a loomlog API?")

    def response_error(self, response: httpx.Response, content: bytes) -> Exception:
        """Return the error of a response with an error status."""
        try:
            details = msgspec.json.decode(content)
        except msgspec.DecodeError:
            details = None
        if not isinstance(details, dict) or "error" not in details:
            return self.invalid_response(
                f"{response.request.method} {response.request.url} returned {response.status_code} "
                f"{response.reason_phrase} without an error of the API"
            )
        return self.api_error(_as_sentence(str(details["error"]) or response.reason_phrase), response, details)


def position_headers(position: str) -> dict[str, str]:
    """Return the header of a request that includes the writes at these positions; none without one."""
    return {POSITION_HEADER: position} if position else {}


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of Retry-After; None without one."""
    try:
        return float(response.headers.get("retry-after", ""))
    except ValueError:
        return None


def quote_segment(text: str) -> str:
    """Quote a text as one path segment, so that an id can never become another route."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def query_params(params: Mapping[str, str | int] | None) -> dict[str, str | int]:
    """Return the parameters without empty ones."""
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
