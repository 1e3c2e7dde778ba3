"""Messages of MCP as server-sent events: those of one request, its answer last.

A client that reads slowly is waited for: what it is sent is made as it takes it. A client that leaves ends the stream
and nothing else (decision 26).

Before: endpoint.py, events.py. After: starlette.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from loomlog.services.api.mcp.calls import Send as SendMessage

KEEPALIVE_S = 15.0
QUEUED_MAX = 64
"""Messages that wait for a slow reader; then the call waits."""
Messages = AsyncGenerator[Mapping[str, Any] | None, None]
"""None: nothing to say for a while."""
END: Any = object()


class MessageStream(StreamingResponse):
    """The response; `on_close` is called once, however it ends."""

    def __init__(self, messages: Messages, *, on_close: Callable[[], None]) -> None:
        self._ended = asyncio.Event()
        body = _encode(messages, self._ended)
        super().__init__(body, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._on_close = on_close

    def end(self) -> None:
        """End the stream before its next message."""
        self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


async def _encode(messages: Messages, ended: asyncio.Event) -> AsyncGenerator[bytes, None]:
    ending = asyncio.ensure_future(ended.wait())
    try:
        async with aclosing(messages):
            while not ended.is_set():
                following = asyncio.ensure_future(anext(messages, END))
                await asyncio.wait({following, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    with suppress(asyncio.CancelledError):
                        await following
                    return
                message = following.result()
                if message is END:
                    return
                yield b": keepalive\n\n" if message is None else _event(message)
    finally:
        ending.cancel()


def _event(message: Mapping[str, Any]) -> bytes:
    return b"event: message\ndata: " + orjson.dumps(message) + b"\n\n"


async def call_messages(call: Callable[[SendMessage], Awaitable[Mapping[str, Any]]]) -> Messages:
    """Yield what a call sends while it is carried out, then its answer."""
    queue: asyncio.Queue[tuple[Mapping[str, Any], bool]] = asyncio.Queue(QUEUED_MAX)

    async def send(message: Mapping[str, Any]) -> None:
        await queue.put((message, False))

    async def work() -> None:
        await queue.put((await call(send), True))

    task = asyncio.get_running_loop().create_task(work())
    try:
        is_last = False
        while not is_last:
            try:
                async with asyncio.timeout(KEEPALIVE_S):
                    message, is_last = await queue.get()
            except TimeoutError:
                if task.done():
                    await task  # it has failed, so there is no last message
                yield None
                continue
            yield message
    finally:
        task.cancel()
