"""The caller of Restate: POST /Agent/run at its ingress, read the answer. A process of its own, in our environment.

A raw HTTP/1.1 protocol over keep-alive connections, as our own HTTP client is one: a general client in Python would
take more of the cores than what it measures.

    python -m tests.benchmarks.peers.restate.client HOST:PORT IN_FLIGHT WARM_UP_S SECONDS
"""

import asyncio
import json
import sys
from typing import cast

import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import PROMPT, STEP_CHARACTERS

RUN_TIMEOUT_S = 60.0
END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"\r\ncontent-length:"


class Connection(asyncio.Protocol):
    """One request at a time, answered with a content-length."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._whole = 0
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._whole and (end := self._received.find(END_OF_HEAD)) >= 0:
            self._whole = end + len(END_OF_HEAD) + content_length(bytes(self._received[: end + 2]))
        if self._whole and len(self._received) >= self._whole and self._done is not None and not self._done.done():
            self._done.set_result(bytes(self._received))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    async def request(self, request: bytes) -> bytes:
        assert self.transport is not None
        self._received.clear()
        self._whole = 0
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            return await self._done


def content_length(head: bytes) -> int:
    """Bytes of the body that such a head announces. An answer that announces none is an error here."""
    _, data, rest = head.lower().partition(LENGTH)
    if not data:
        raise ConnectionError(f"an answer without content-length: {head[:200]!r}")
    return int(rest.partition(b"\r\n")[0])


class RestateClient:
    """A pool of connections."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._idle: list[Connection] = []
        body = json.dumps(PROMPT).encode()
        self._request = (
            f"POST /Agent/run HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    async def run_once(self) -> None:
        connection = self._idle.pop() if self._idle else await self._connect()
        answer = await connection.request(self._request)
        if not answer.startswith(b"HTTP/1.1 200") or len(answer) < STEP_CHARACTERS:
            raise RuntimeError(f"no final text: {answer[:300]!r}")
        self._idle.append(connection)

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        return connection


async def main(address: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    client = RestateClient(host, int(port))
    measured = await measure(client.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
