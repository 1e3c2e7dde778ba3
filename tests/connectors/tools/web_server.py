"""A server on loopback that says byte by byte what a test wants, and names that resolve to it.

`Names` is the resolver and the network of the tools at once: it says which addresses a name has, look-up by look-up,
and dials loopback for the one public address it knows, so that a test can reach its server "in public" and sees every
address that was dialled.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpcore

PUBLIC = "93.184.215.14"
"""Globally reachable, as the filter sees it; dialling it reaches the test's server."""

Answer = bytes | Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def page(body: bytes | str, *headers: str, status: str = "200 OK") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def redirect(location: str, status: int = 302) -> bytes:
    return page("", f"Location: {location}", status=f"{status} Moved")


@dataclass
class Server:
    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    """By path; an unknown path answers 404."""
    requests: list[str] = field(default_factory=list)
    """Heads and bodies as they came."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next((int(v) for n, _, v in _lines(head) if n.lower() == "content-length"), 0)
            self.requests.append(head + (await reader.readexactly(length)).decode())
            answer = self.answers.get(head.split(" ")[1], page("", status="404 Not Found"))
            if callable(answer):
                await answer(reader, writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The tool had enough.
        finally:
            writer.close()

    def header(self, name: str, request: int = -1) -> str | None:
        return next((v for n, _, v in _lines(self.requests[request]) if n.lower() == name), None)


def _lines(head: str) -> list[tuple[str, str, str]]:
    return [line.partition(": ") for line in head.split("\r\n")]


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, **options)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


class Names(httpcore.AsyncNetworkBackend):
    """Every name is public unless told otherwise. A list of lists gives the addresses of each look-up in turn."""

    def __init__(self, addresses: dict[str, Sequence[Sequence[str]]] | None = None) -> None:
        self._addresses = addresses or {}
        self._lookups: dict[str, int] = {}
        self._network = httpcore.AnyIOBackend()
        self.dialled: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        turn = self._lookups.get(host, 0)
        self._lookups[host] = turn + 1
        turns = self._addresses.get(host, [[PUBLIC]])
        result = turns[min(turn, len(turns) - 1)]
        if not result:
            raise OSError(-2, "Name or service not known")
        return result

    async def connect_tcp(self, host: str, port: int, *_: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        real = "127.0.0.1" if host == PUBLIC else host
        return await self._network.connect_tcp(real, port, **options)
