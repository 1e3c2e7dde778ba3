"""An MCP server of ours over HTTP that behaves well, or as badly as a test says.

`answers` maps a method to what is answered: a result, an RpcFailure, or a Raw response. `requests` has what came.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ECHO = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass
class RpcFailure:
    """An answer with an error."""

    code: int
    message: str
    status: int = 200
    data: dict | None = None


@dataclass
class Raw:
    """A response as it is. `chunks` are sent one after the other; `stays_open`: the response never ends; `is_cut`: the
    connection ends in its middle.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    stays_open: bool = False
    is_cut: bool = False


def sse(*frames: Any) -> Raw:
    data = [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames]
    return Raw(headers={"content-type": "text/event-stream"}, chunks=data)


def document(value: Any, status: int = 200) -> Raw:
    return Raw(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def result_frame(request: dict, result: Any) -> dict:
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def initialize(request: dict) -> Any:
    revision = request["params"]["protocolVersion"]
    return {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}}


def echo(request: dict) -> Any:
    return {"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]}


class PeerServer:
    """Use as `async with PeerServer() as peer`."""

    def __init__(self, **answers: Callable[[dict], Any]) -> None:
        self.answers: dict[str, Callable[[dict], Any]] = {
            "initialize": initialize,
            "tools/list": lambda request: {"tools": [ECHO]},
            "tools/call": echo,
        }
        self.requests: list[tuple[dict[str, str], dict]] = []
        self.session_id = ""
        self.guard: Callable[[dict[str, str]], Raw | None] = lambda headers: None
        """Refuses a message by its headers."""
        self.pages: dict[str, Callable[[dict[str, str], bytes], Any]] = {}
        """What other paths answer, from the headers and the body: JSON, or a Raw."""

    async def __aenter__(self) -> "PeerServer":
        self._connections: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def methods(self) -> list[str]:
        return [body.get("method", "") for _, body in self.requests]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        path = head[0].split(" ")[1].partition("?")[0]
        if path != "/mcp":
            page = self.pages.get(path, lambda headers, body: Raw(404))(headers, raw)
            return await self._write(writer, {}, page if isinstance(page, Raw) else document(page))
        body = json.loads(raw)
        if (refusal := self.guard(headers)) is not None:
            return await self._write(writer, body, refusal)
        self.requests.append((headers, body))
        answered = self._answer(body)
        if asyncio.iscoroutine(answered):
            answered = await answered
        return await self._write(writer, body, answered)

    def _answer(self, body: dict) -> Any:
        if "method" not in body or "id" not in body:
            return Raw(status=202)
        handler = self.answers.get(body["method"])
        return RpcFailure(-32601, "no such method") if handler is None else handler(body)

    async def _write(self, writer: asyncio.StreamWriter, body: dict, answered: Any) -> bool:
        if isinstance(answered, RpcFailure):
            error = {"code": answered.code, "message": answered.message, "data": answered.data}
            answered = Raw(
                answered.status,
                {"content-type": "application/json"},
                [json.dumps({"jsonrpc": "2.0", "id": body["id"], "error": error}).encode()],
            )
        if not isinstance(answered, Raw):
            data = json.dumps(result_frame(body, answered)).encode()
            answered = Raw(200, {"content-type": "application/json"}, [data])
        headers = dict(answered.headers)
        if self.session_id and body.get("method") == "initialize":
            headers["mcp-session-id"] = self.session_id
        if not answered.chunks and not answered.stays_open:
            headers["content-length"] = "0"
        else:
            headers["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {answered.status} X", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for chunk in answered.chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if answered.is_cut:
            await writer.drain()
            return False
        if answered.stays_open:
            await asyncio.Event().wait()
        if "transfer-encoding" in headers:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
