"""A client of event streams that costs little: one request at a time over a raw HTTP/1.1 connection.

A general client in Python would take more of the two cores than the server it measures. Frames are told as they
arrive, each with the moment its bytes were read.

Before: the clients of the single figures (stream_client.py, cancel_client.py). After: the api.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from loomlog.connectors.process.file_limits import raise_open_file_limit

TIMEOUT_S = 120.0
"""For one answer; a stream that takes longer counts as stalled."""
FILES_BESIDE = 512
"""Descriptors a process needs besides its streams."""


class Frame(NamedTuple):
    """One frame as it came; `at_s` is time.time() of the read."""

    type: str
    seq: int | None
    data: bytes
    at_s: float


Seen = Callable[[Frame], None]


def _nobody(frame: Frame) -> None: ...


class Connection(asyncio.Protocol):
    """One request at a time; answers are chunked streams or have a length."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._done: asyncio.Future[bytes] | None = None
        self._seen: Seen = _nobody
        self._status = 0
        self._chunked = False
        self._left = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._done is None or self._done.done():
            return
        if not self._status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks(time.time())
        elif len(self._buffer) >= self._left:
            self._end(bytes(self._buffer))

    async def request(
        self, request: bytes, seen: Seen = _nobody, *, timeout_s: float | None = TIMEOUT_S
    ) -> tuple[int, bytes]:
        """Status and body, when the answer is over; the frames of a stream go to `seen`, and its body is empty."""
        assert self._transport is not None
        self._buffer.clear()
        self._status, self._seen = 0, seen
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(timeout_s):
            body = await self._done
        return self._status, body

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        del self._buffer[: end + 4]
        self._status = int(head[9:12])
        self._chunked = b"transfer-encoding: chunked" in head
        if not self._chunked:
            self._left = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return True

    def _read_chunks(self, at_s: float) -> None:
        buffer = self._buffer
        while (line := buffer.find(b"\r\n")) >= 0:
            size = int(buffer[:line], 16)
            if len(buffer) < line + 2 + size + 2:
                return
            chunk = bytes(buffer[line + 2 : line + 2 + size])
            del buffer[: line + 2 + size + 2]
            if not size:
                self._end(b"")
                return
            # The server writes whole frames, and each write is a chunk.
            for text in chunk.split(b"\n\n"):
                if text and not text.startswith(b":"):
                    self._seen(_frame(text, at_s))

    def _end(self, body: bytes) -> None:
        assert self._done is not None
        self._done.set_result(body)


def _frame(text: bytes, at_s: float) -> Frame:
    kind, seq, data = "", None, b""
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"event":
            kind = value.decode()
        elif name == b"id":
            seq = int(value)
        elif name == b"data":
            data = value
    return Frame(kind, seq, data, at_s)


class Client:
    """A pool of connections to one api."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        token = os.environ.get("LOOMLOG_AUTH_TOKEN", "")
        self._authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._idle: list[Connection] = []

    def message(self, method: str, path: str, body: Any = None) -> bytes:
        """A request as it goes over the wire."""
        data = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._authorization}{kind}\r\n"
        ).encode() + data

    async def send(
        self, message: bytes, seen: Seen = _nobody, *, timeout_s: float | None = TIMEOUT_S
    ) -> tuple[int, bytes]:
        """As ClientConnection.request, over any connection; one that failed is not used again."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            answer = await connection.request(message, seen, timeout_s=timeout_s)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Closes the connections that are not in use."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        return connection


def allow_streams(streams: int) -> None:
    """Lets this process, and those it starts, have so many streams open. SystemExit with advice when it may not."""
    expected = streams + FILES_BESIDE
    allowed = raise_open_file_limit(expected)
    if allowed < expected:
        raise SystemExit(
            f"{streams} streams need {expected} open files and at most {allowed} are allowed here (ulimit -Hn): raise "
            "that, or measure fewer streams"
        )
