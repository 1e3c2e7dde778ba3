"""The application side: POST /v1/runs, read the event stream to its last frame. A process of its own.

A raw HTTP/1.1 protocol over keep-alive connections: a general client in Python would take more of the two cores than
the server it measures.

    python -m tests.benchmarks.http_client HOST:PORT IN_FLIGHT WARM_UP_S SECONDS      marks, then one JSON line
"""

import asyncio
import json
import os
import sys
from itertools import count
from typing import cast

import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import AGENT, USERS, request_body

RUN_TIMEOUT_S = 30.0
END_OF_BODY = b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._done is not None and not self._done.done() and self._received.endswith(END_OF_BODY):
            self._done.set_result(bytes(self._received))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    async def request(self, request: bytes) -> bytes:
        """The whole answer of a chunked response."""
        assert self.transport is not None
        self._received.clear()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            return await self._done


class HttpClient:
    """A pool of connections."""

    def __init__(self, host: str, port: int, token: str, *, agent: str = AGENT, users: int = USERS) -> None:
        self._host, self._port = host, port
        self._idle: list[Connection] = []
        self._agent, self._users = agent, users
        self._numbers = count()
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._head = (
            f"POST /v1/runs HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    async def run_once(self) -> None:
        body = request_body(next(self._numbers), self._agent, users=self._users)
        connection = self._idle.pop() if self._idle else await self._connect()
        answer = await connection.request(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))
        if b"\nevent: done\n" not in answer:
            raise RuntimeError(f"no done frame: {answer[:300]!r}")
        self._idle.append(connection)

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        return connection


async def main(address: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    client = HttpClient(host, int(port), os.environ.get("LOOMLOG_AUTH_TOKEN", ""))
    measured = await measure(client.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
