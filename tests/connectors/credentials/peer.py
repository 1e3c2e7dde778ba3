"""A server that answers as Vault, AWS, GitHub or an OAuth server would, and remembers what it was sent."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

Answer = tuple[int, Any]


class Peer:
    """Use as `async with Peer(answer) as peer`. `answer` gets a request and returns status and JSON."""

    def __init__(self, answer: Callable[["Request"], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.held = asyncio.Event()
        self.held.set()

    async def __aenter__(self) -> "Peer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(_pair(line) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split(" ")
        request = Request(method, path, headers, body)
        self.requests.append(request)
        await self.held.wait()
        status, answer = self.answer(request)
        data = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n".encode())
        if status == 302:
            writer.write(f"Location: {self.url}/elsewhere\r\n".encode())
        writer.write(b"\r\n" + data)
        await writer.drain()
        writer.close()


class Request:
    """What was sent."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name.lower(), value
