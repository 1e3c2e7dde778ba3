"""An MCP server on standard input and output that has no runtime: every message is a request to the API.

    stdin line -> POST /v1/_mcp -> stdout line(s)

Messages are sent side by side from the first one, so a run that is waited for holds up nothing. A connection that
breaks is made again after 0, 0.5, 1, 2 and 4 seconds, and the message sent again under the Idempotency-Key that it had,
so that nothing is done twice. A session that the API no longer knows is begun again with the client's first message.
The client's answers to questions are passed on, and so is a cancel.

Before: command.py. After: services/api/mcp/endpoint.py.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from secrets import token_hex
from typing import Any, BinaryIO

import httpx
import orjson

from loomlog.connectors.http.sse import FrameTooLarge, server_events

PATH = "/v1/_mcp"
RECONNECT_S = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt (parity: reference surfaces 3.4)."""
LINE_BYTES_MAX = 4 * 1024 * 1024
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one message of the API: a state file of 4 MiB twice, as text and as JSON, with what escapes add."""
CONNECT_TIMEOUT_S = 10.0
SESSION = "mcp-session-id"
PARSE_ERROR, UNREACHABLE = -32700, -32000
RETRIED = frozenset({502, 503, 504})
"""Statuses of an API that starts, stops or is not reached; whatever it says, the message may be sent again."""
NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
"""Parameter that the header Mcp-Name repeats, by method."""
Write = Callable[[bytes], None]


class ThinClient:
    """Passes messages on. `write` takes one line for the client."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        write: Write,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._write = write
        self._sleep = sleep
        self._process = token_hex(8)
        self._hello: dict[str, Any] | None = None
        self._session = ""
        self._began = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[str | int, asyncio.Task[None]] = {}
        """Requests without a session, by their ids."""

    async def run(self, lines: BinaryIO) -> None:
        """Pass on the lines until the input ends, and let what is under way end."""
        while line := await asyncio.to_thread(lines.readline, LINE_BYTES_MAX + 1):
            if line.strip():
                task = asyncio.get_running_loop().create_task(self.pass_on(line))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def pass_on(self, line: bytes) -> None:
        """Pass one message on, and write what comes back."""
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            self._fail(None, PARSE_ERROR, f"the line is not JSON: {error}")
            return
        if not isinstance(message, dict) or len(line) > LINE_BYTES_MAX:
            self._fail(None, PARSE_ERROR, f"expected one object of at most {LINE_BYTES_MAX} bytes in a line")
            return
        try:
            if message.get("method") == "initialize":
                self._hello = message
                await self._begin(message, is_told=True)
            elif message.get("method") == "notifications/cancelled":
                await self._cancel(message)
            elif "id" in message:
                await self._request(message)
        except httpx.HTTPError as error:
            text = f"the API at {self._client.base_url} does not answer: {error or type(error).__name__}"
            self._fail(message.get("id"), UNREACHABLE, text)

    async def _begin(self, hello: dict[str, Any], *, is_told: bool) -> None:
        """Begin a session; the client is told of the first one."""
        async with self._beginning:
            try:
                response = await self._post(hello, {})
                self._session = response.headers.get(SESSION, "")
            finally:
                self._began.set()  # requests behind a handshake that failed are answered too
            if is_told:
                self._write(_as_message(response))

    async def _cancel(self, message: dict[str, Any]) -> None:
        """Cancel a request: one without a session by leaving its answer, any other by telling the API."""
        params = message.get("params")
        named = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(named, str | int) and (under_way := self._under_way.get(named)) is not None:
            under_way.cancel()
        elif self._session:
            await self._post(message, {SESSION: self._session})

    async def _request(self, message: dict[str, Any]) -> None:
        """Send a request, once more with a new session when the API does not know this one."""
        named, task = message["id"], asyncio.current_task()
        if task is None or self._needs_session(message) or not isinstance(named, str | int):
            await self._exchange(message)
            return
        self._under_way[named] = task
        try:
            await self._exchange(message)
        finally:
            del self._under_way[named]

    async def _exchange(self, message: dict[str, Any]) -> None:
        is_stateless = not self._needs_session(message)
        if not is_stateless:
            await self._began.wait()
        for is_last in (False, True):
            session = self._session
            response = await self._post(message, {} if is_stateless else {SESSION: session})
            if response.status_code != 404 or is_stateless or self._hello is None or is_last:
                break
            if session == self._session:
                await self._begin(self._hello, is_told=False)
        if not _is_stream(response) and response.content:
            self._write(_as_message(response))

    def _needs_session(self, message: dict[str, Any]) -> bool:
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        return not (isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta)

    async def _post(self, message: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """Send a message until there is an answer. Raises httpx.HTTPError."""
        headers = {**headers, **_stateless_headers(message), "accept": "application/json, text/event-stream"}
        if message.get("method") == "tools/call":
            headers["idempotency-key"] = f"{self._process}:{message['id']}"
        for attempt, pause_s in enumerate(RECONNECT_S):
            await self._sleep(pause_s)
            is_last = attempt == len(RECONNECT_S) - 1
            request = self._client.build_request("POST", PATH, content=orjson.dumps(message), headers=headers)
            try:
                response = await self._client.send(request, stream=True)
                await self._read(response)
            except httpx.TransportError:
                if is_last:
                    raise
                continue
            if response.status_code not in RETRIED or is_last:
                return response
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, response: httpx.Response) -> None:
        """Read an answer; the messages of a stream are written as they come, that of the request last."""
        try:
            if not _is_stream(response):
                await response.aread()
                return
            chunks = (chunk async for chunk in response.aiter_bytes())
            async with aclosing(server_events(chunks, MESSAGE_BYTES_MAX)) as events:
                async for event in events:
                    self._write(event.data)
        except FrameTooLarge as error:
            raise httpx.DecodingError(f"a message of the API is too long: {error}") from error
        finally:
            await response.aclose()

    def _fail(self, request_id: Any, code: int, text: str) -> None:
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
        self._write(orjson.dumps(error))


def _stateless_headers(message: dict[str, Any]) -> dict[str, str]:
    """Return the headers that repeat what a request of the stateless era says."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    revision = meta.get("io.modelcontextprotocol/protocolVersion") if isinstance(meta, dict) else None
    headers = {"content-type": "application/json"}
    if not isinstance(revision, str) or not isinstance(params, dict):
        return headers
    headers |= {"mcp-protocol-version": revision, "mcp-method": str(message.get("method"))}
    field = NAMED_BY.get(str(message.get("method")), "")
    return headers | ({"mcp-name": params[field]} if isinstance(params.get(field), str) else {})


def _is_stream(response: httpx.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def _as_message(response: httpx.Response) -> bytes:
    """Return an answer as a message; a refusal of the API becomes an error of the protocol."""
    body = orjson.loads(response.content)
    if "jsonrpc" in body:
        return response.content
    request = orjson.loads(response.request.content)
    error = {"code": UNREACHABLE, "message": body.get("error", "refused"), "data": body}
    return orjson.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error})


async def serve(base_url: str, token: str) -> None:
    """Serve standard input until it ends."""
    out = sys.stdout.buffer

    def write(message: bytes) -> None:
        out.write(message + b"\n")
        out.flush()

    headers = {"authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout) as client:
        await ThinClient(client, write).run(sys.stdin.buffer)
