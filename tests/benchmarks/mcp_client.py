"""The client of MCP without sessions: one tools/call or tools/list at a time over keep-alive connections. A process of
its own.

    python -m tests.benchmarks.mcp_client HOST:PORT IN_FLIGHT WARM_UP_S SECONDS      marks, then one JSON line

BENCH_CALL names what is called: run (spawn_run of A3x2), list (tools/list) or cheap (context).
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from itertools import count
from typing import Any

import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.http_client import Connection
from tests.benchmarks.workload import request_body

REVISION = "2026-07-28"
META: Mapping[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class JsonConnection(Connection):
    """One request at a time, whose answer says its length."""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = bytes(self._received).partition(b"\r\n\r\n")
        length = LENGTH.search(head) if end else None
        if self._done is not None and not self._done.done() and length is not None and len(body) >= int(length[1]):
            self._done.set_result(body)


class McpClient:
    """A pool of connections."""

    def __init__(self, host: str, port: int, token: str, call: str) -> None:
        self._host, self._port, self._call = host, port, call
        self._idle: list[JsonConnection] = []
        self._numbers = count()
        self._authorization = f"Authorization: Bearer {token}\r\n" if token else ""

    async def call_once(self) -> None:
        """Call once. Raises RuntimeError for an answer that is none."""
        number = next(self._numbers)
        match self._call:
            case "run":
                request = self._request("tools/call", "spawn_run", json.loads(request_body(number)))
            case "list":
                request = self._request("tools/list")
            case _:
                request = self._request("tools/call", "context", {"op": "self"})
        connection = self._idle.pop() if self._idle else await self._connect()
        answer = json.loads(await connection.request(request))
        result = answer.get("result")
        is_run = self._call == "run"
        if result is None or (is_run and result["structuredContent"]["status"] != "completed"):
            raise RuntimeError(f"no result: {str(answer)[:300]}")
        self._idle.append(connection)

    def _request(self, method: str, name: str = "", arguments: Any = None) -> bytes:
        named = {"name": name, "arguments": arguments} if name else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**named, "_meta": META}}
        body = json.dumps(message).encode()
        head = (
            f"POST /v1/_mcp HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._authorization}"
            f"MCP-Protocol-Version: {REVISION}\r\nMcp-Method: {method}\r\n"
            + (f"Mcp-Name: {name}\r\n" if name else "")
            + f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _connect(self) -> JsonConnection:
        _, connection = await asyncio.get_running_loop().create_connection(JsonConnection, self._host, self._port)
        return connection


async def main(address: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    client = McpClient(host, int(port), os.environ.get("LOOMLOG_AUTH_TOKEN", ""), os.environ["BENCH_CALL"])
    measured = await measure(client.call_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
