"""The HTTP API for commands: the client library with the errors, hints and file transfers of the command line.

Before: services/cli/runs/runs.py, services/cli/runs/review.py, services/cli/doctor/status.py. After: connectors/client.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from loomlog.connectors import client
from loomlog.connectors.client.errors import api_error_class
from loomlog.connectors.client.http import (
    CLI_AGENT,
    CONNECT_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    ApiResponse,
    HttpClient,
    query_params,
    quote_segment,
    retry_after_s,
)
from loomlog.connectors.storage.private_files import create_file
from loomlog.services.cli.errors import CliError, NotFound, Unreachable, UsageError

CHUNK_BYTES = 256 * 1024
"""Chunk size in bytes for a file upload."""
PENDING = frozenset({"command_pending", "definition_pending"})
"""Codes of writes that may still be carried out."""


class ApiError(client.ApiError, CliError):
    """The API refused the request."""


class ApiNotFound(ApiError, NotFound):
    """What was asked for does not exist."""


class ApiUnavailable(client.ApiUnavailable, ApiError, Unreachable):
    """The API cannot do it at the moment: a service it depends on is down or not ready yet."""


class ApiUnreachable(client.Unreachable, Unreachable):
    """The API does not answer."""


class ApiClient(HttpClient):
    """The API of this installation: `async with ApiClient(base_url, token) as api`."""

    def __init__(self, base_url: str, token: str = "", *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(base_url, token, transport=transport)
        self.http.headers["User-Agent"] = CLI_AGENT

    async def send_file(
        self, path: str, file: Path, *, timeout_s: float, params: Mapping[str, str | int] | None = None
    ) -> ApiResponse:
        """Upload a file, streamed from disk, and return the response. Raises CliError."""
        headers = {"content-type": "application/gzip"}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        return await self.request(
            "POST", path, content=_file_chunks(file), params=query_params(params), headers=headers, timeout=timeout
        )

    async def download(self, path: str, target: Path) -> None:
        """Download a response to a new file that only its owner may read, streamed and flushed.

        Raises CliError, also when the transfer broke off, and OSError.
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
                "its log has the reason."
            ) from error
        except httpx.HTTPError as error:
            raise self.unreachable_error(error) from error

    def unreachable_error(self, error: httpx.HTTPError | None = None) -> ApiUnreachable:
        return ApiUnreachable(
            f"{super().unreachable_error(error)} `loomlog status` shows what runs here, `loomlog up` starts it; "
            "LOOMLOG_BASE_URL names one elsewhere."
        )

    def stream_lost_error(self, problem: str, run_id: str) -> ApiUnreachable:
        rest = f" `loomlog runs follow {run_id}` follows it further." if run_id else ""
        return ApiUnreachable(f"{super().stream_lost_error(problem, run_id)}{rest}")

    def api_error(self, message: str, response: httpx.Response, details: Mapping[str, Any]) -> CliError:
        code, status = str(details.get("code", "")), response.status_code
        if status == 401:
            hint = "the token is unknown" if self.token else "a token is required"
            return UsageError(
                f"The API at {self.base_url} refused access: {hint}. Set LOOMLOG_TOKEN (or LOOMLOG_AUTH_TOKEN), or use "
                "`loomlog login`."
            )
        kind = ApiUnavailable if api_error_class(status, code) is client.ApiUnavailable else ApiError
        kind = ApiNotFound if status in (404, 410) or code == "unknown_agent" else kind
        return kind(message, code=code, status=status, details=details, retry_after_s=retry_after_s(response))

    def invalid_response(self, problem: str) -> CliError:
        return CliError(f"{problem}. Is the address right? LOOMLOG_BASE_URL names it.")


@contextmanager
def explain_pending(key: str) -> Iterator[None]:
    """Add to the error of a write whose outcome is unknown how to repeat it without doing it twice. `key`: its
    Idempotency-Key; empty: it has none.
    """
    try:
        yield
    except ApiError as error:
        if error.code not in PENDING or not key:
            raise
        raise type(error)(
            f"{error} With `--idempotency-key {key}` it is not done twice.",
            code=error.code,
            status=error.status,
            details=error.details,
            retry_after_s=error.retry_after_s,
        ) from error


async def _file_chunks(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, CHUNK_BYTES):
            yield piece


__all__ = [
    "CONNECT_TIMEOUT_S",
    "RESPONSE_TIMEOUT_S",
    "ApiClient",
    "ApiError",
    "ApiResponse",
    "ApiUnavailable",
    "ApiUnreachable",
    "explain_pending",
    "query_params",
    "quote_segment",
]
