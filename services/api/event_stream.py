"""A run's frames as server-sent events: one write for everything since the last write.

    event: text
    id: 1281                     streams of GET .../stream, and POST with ?ids=1; previews have none
    data: {"type":"text", ...}

A frame's bytes are shared by all readers of the run (items.py); only the lines around them are built here. This is the
hot path of a start, so it is a bare ASGI response: no generator, no task. A task that detects the client's disconnect
is started only once a stream has lasted a while; short runs never pay for it. A client that disconnects ends only its
stream. A client that reads nothing for WRITE_WAIT_S is dropped, and reconnects with Last-Event-ID.

Before: services/application/streaming/run_stream.py. After: the response body.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import ENDED
from loomlog.services.application.streaming.subscription import CLIENT_LEFT
from loomlog.services.core.refusals import Refused

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
KEEPALIVE = b": keepalive\n\n"
WATCH_AFTER_S = 1.0
"""Seconds until a stream starts to watch for the client's disconnect; most runs of a busy system have ended by then."""
WRITE_WAIT_S = 30.0
"""Seconds a client may leave everything unread before it is dropped."""


class ChunkStream(Protocol):
    """Source of chunks: run_stream.RunStream or run_states.StateStream."""

    end_reason: str

    async def next(self) -> list[StreamChunk] | None: ...
    def close(self, reason: str = CLIENT_LEFT) -> None: ...


class EventStream:
    """A response that streams a run, or the states of many. `on_close` is called once, however the stream ends."""

    background = None

    def __init__(
        self,
        stream: ChunkStream,
        *,
        with_ids: bool,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self._stream = stream
        self._with_ids = with_ids
        self.raw_headers = [*HEADERS, *((k.encode(), v.encode()) for k, v in (headers or {}).items())]
        self.on_close: Callable[[], None] = lambda: None
        self._watcher: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start_watcher, receive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            is_open = True
            while is_open:
                body, is_open = await self._next_body()
                if not await _write_body(send, body, more=is_open):
                    return
        finally:
            timer.cancel()
            if self._watcher is not None:
                self._watcher.cancel()
                # The task's CancelledError refers to the frame that refers to self: only the garbage collector would
                # break the cycle.
                self._watcher = None
            self._stream.close()
            self.on_close()

    def end(self, reason: str) -> None:
        """End the stream with a comment that has the reason."""
        self._stream.close(reason)

    async def _next_body(self) -> tuple[bytes, bool]:
        """Return the next bytes to write, and whether more follow. The last frames are sent with the end of the
        response.
        """
        stream = self._stream
        try:
            pieces = await stream.next()
        except Refused as declined:
            # The response has begun, so it can only report why it ends; the client reconnects.
            return encode_comment(f"ended: {declined.code}"), False
        if pieces is None:
            if stream.end_reason in (ENDED, CLIENT_LEFT):
                return b"", False
            return encode_comment(f"ended: {stream.end_reason}; resume with Last-Event-ID"), False
        if not pieces:
            return KEEPALIVE, True
        return encode_chunks(pieces, with_ids=self._with_ids), stream.end_reason != ENDED

    def _start_watcher(self, receive: Receive) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._close_on_disconnect(receive))

    async def _close_on_disconnect(self, receive: Receive) -> None:
        while True:
            message: Any = await receive()
            if message["type"] == "http.disconnect":
                self._stream.close(CLIENT_LEFT)
                return


def encode_chunks(chunks: Iterable[StreamChunk], *, with_ids: bool) -> bytes:
    """Encode frames as server-sent events."""
    parts: list[bytes] = []
    for piece in chunks:
        parts += (b"event: ", piece.type.encode(), b"\n")
        if with_ids and (piece.id or piece.seq is not None):
            parts += (b"id: ", (piece.id or str(piece.seq)).encode(), b"\n")
        parts += (b"data: ", piece.data, b"\n\n")
    return b"".join(parts)


def encode_comment(text: str) -> bytes:
    """Encode a comment line, which clients ignore and people read."""
    return f": {text}\n\n".encode()


async def _write_body(send: Send, body: bytes, *, more: bool) -> bool:
    """Write part of the body; return False when the client has read nothing for too long."""
    try:
        async with asyncio.timeout(WRITE_WAIT_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except TimeoutError:
        return False
    return True
