"""The requests of commands: most open the API of this installation, ask once, and close it.

Before: every command that asks the API. After: api.py.
"""

import json
import uuid
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.http.api import (
    CONNECT_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    ApiClient,
    ApiResponse,
    explain_pending,
    query_params,
)
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.terminal.output import DIM, NAME, console, print_json

Request = ParamSpec("Request")
Answer = TypeVar("Answer")


def open_api() -> ApiClient:
    """Return a client for the API of this installation, with the token of the environment."""
    cli = current_settings()
    client = ApiClient(cli.api_url, cli.token)
    if cli.record is None and not cli.settings.base_url:
        client.reconnect_timeout_s = 0.0  # no stack runs or starts here, so there is nothing to wait for
    return client


async def send_with(
    api: ApiClient,
    method: str,
    path: str,
    body: Any = None,
    *,
    params: Mapping[str, str | int] | None = None,
    key: str | None = None,
    timeout_s: float = RESPONSE_TIMEOUT_S,
) -> ApiResponse:
    """Send a write once, whatever becomes of the answer, and return that. Raises CliError.

    `body`: a JSON value, or bytes that are JSON. `key`: its Idempotency-Key; empty: a new one; None: it has none.
    """
    headers = {} if body is None else {"Content-Type": "application/json"}
    if key is not None:
        key = key or str(uuid.uuid4())
        headers["Idempotency-Key"] = key
    with explain_pending(key or ""):
        return await api.request(
            method,
            path,
            params=query_params(params),
            headers=headers,
            content=body if isinstance(body, bytes) or body is None else json.dumps(body).encode(),
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        )


def _once(ask: Callable[Concatenate[ApiClient, Request], Coroutine[Any, Any, Answer]]) -> Callable[Request, Answer]:
    """Return `ask` over a client that is opened for it, and closed."""

    @wraps(ask)
    def ask_once(*args: Request.args, **options: Request.kwargs) -> Answer:
        async def asked() -> Answer:
            async with open_api() as api:
                return await ask(api, *args, **options)

        return run(asked())

    return ask_once


get = _once(ApiClient.get)
send = _once(send_with)


def print_written(response: ApiResponse) -> None:
    """Print the answer of a write as JSON, with the position of its event."""
    print_json({**(response.value or {}), "position": response.position or None})


def print_change(name: str, what: str, response: ApiResponse) -> None:
    """Print what has become of something, and the position of its event."""
    event = (("  event ", DIM), response.position) if response.position else ()
    console().print(Text.assemble((name, NAME), f" {what}", *event))
