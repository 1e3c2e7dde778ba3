"""A provider that misbehaves on purpose: a raw HTTP/1.1 server on loopback, one answer function for each request.

It is written on sockets and not on a framework, because what it must do is what frameworks prevent: stop in the middle
of a frame, say nothing, reset the connection, send chunks that never end.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

REASONS = {200: "OK", 302: "Found"}


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Peer:
    """What an answer function gets: the request, and the connection to answer on."""

    request: Received
    writer: asyncio.StreamWriter
    stopped: asyncio.Event

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def head(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Some')}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def stall(self) -> None:
        """Nothing more until the server is stopped."""
        await self.stopped.wait()

    def reset(self) -> None:
        """A TCP reset instead of an orderly end."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Answer = Callable[[Peer], Awaitable[None]]


@dataclass
class FaultServer:
    answer: Answer
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    closed_by_client: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        arrived: asyncio.Queue[Received | None] = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(reader, arrived))
        try:
            while (request := await arrived.get()) is not None and not writer.is_closing():
                await self.answer(Peer(request, writer, self.stopped))
        except ConnectionError:
            pass  # the client went away while it was answered, as some tests want
        finally:
            reading.cancel()
            with suppress(ConnectionError):
                writer.close()

    async def _read(self, reader: asyncio.StreamReader, arrived: "asyncio.Queue[Received | None]") -> None:
        """Reads on while an answer is being given, so that a client that leaves is noticed at once."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await _request(reader)
                self.requests.append(request)
                arrived.put_nowait(request)
        self.closed_by_client.set()
        arrived.put_nowait(None)


async def _request(reader: asyncio.StreamReader) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


# --- answers ---------------------------------------------------------------------------------------------------------


def stream(frames: Iterable[bytes], *, finally_: str = "end", content_type: str = "text/event-stream") -> Answer:
    """A 200 with a stream in chunks, then: end, close (no last chunk), reset, or stall."""
    pieces = list(frames)

    async def answer(peer: Peer) -> None:
        await peer.head(200, content_type=content_type, transfer_encoding="chunked")
        for piece in pieces:
            await peer.chunk(piece)
        if finally_ == "end":
            await peer.send(b"0\r\n\r\n")
        elif finally_ == "close":
            peer.writer.close()
        elif finally_ == "reset":
            peer.reset()
        else:
            await peer.stall()

    return answer


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """An answer with a status and a whole body."""

    async def answer(peer: Peer) -> None:
        await peer.head(code, content_length=str(len(body)), **headers)
        await peer.send(body)

    return answer


def error(code: int, message: str, **headers: str) -> Answer:
    """An error in the JSON shape both wires use."""
    body = json.dumps({"type": "error", "error": {"type": "some_error", "message": message}}).encode()
    return status(code, body, content_type="application/json", **headers)


def routed(turn: Answer, **others: Answer) -> Answer:
    """`turn` for the path of a turn, and others by the last word of theirs (`ps`, `show`, `tags`, `models`)."""

    async def answer(peer: Peer) -> None:
        last = peer.request.path.partition("?")[0].rpartition("/")[2]
        await others.get(last, turn)(peer)

    return answer


def document(value: Any) -> Answer:
    """A 200 with a JSON document."""
    return status(200, json.dumps(value).encode(), content_type="application/json")


async def silent(peer: Peer) -> None:
    await peer.stall()


async def resetting(peer: Peer) -> None:
    peer.reset()
