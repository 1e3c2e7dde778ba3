"""The application side over gRPC: Run, read the events to the last. A process of its own.

A raw HTTP/2 connection with one stream for each run, as the raw HTTP/1.1 of http_client.py: a general client in Python
would take more of the two cores than the server it measures. Answers are not decoded: a run has ended when its stream
has, and must have a `done`.

    LOOMLOG_GRPC_ADDR=HOST:PORT python -m tests.benchmarks.grpc_client _ IN_FLIGHT WARM_UP_S SECONDS
"""

import asyncio
import json
import os
import struct
import sys
from itertools import count
from typing import cast

import uvloop

from loomlog.services.grpc.messages import SERVICE, message_class
from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import AGENT, USERS, request_body

RUN_TIMEOUT_S = 30.0
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
WINDOW_MAX = 2**31 - 1
RENEW_BYTES = 2**24
INITIAL_WINDOW_SIZE = 4
DONE = b"\n\x04done"
"""The type of an Event: field 1."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value: str) -> bytes:
    """A text of HPACK, not compressed; below 127 bytes."""
    raw = value.encode()
    assert len(raw) < 127, value
    return bytes([len(raw)]) + raw


def header_block(path: str, authority: str, token: str) -> bytes:
    """Headers of an RPC: literals that no table keeps."""
    block = b"\x83\x86\x04" + text(path) + b"\x01" + text(authority)
    more = {"content-type": "application/grpc", "te": "trailers"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
    return block + b"".join(b"\x00" + text(name) + text(value) for name, value in more.items())


class Connection(asyncio.Protocol):
    """A connection with a stream for each RPC."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._unread: dict[int, bytearray] = {}
        self._done: dict[int, asyncio.Future[bytes]] = {}
        self._streams = count(1, 2)
        self._renewable = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW_MAX)
        self.transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, settings))
        self.transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_MAX - 65_535)))

    def connection_lost(self, exc: Exception | None) -> None:
        for done in self._done.values():
            if not done.done():
                done.set_exception(ConnectionError("the server closed the connection"))

    async def call(self, headers: bytes, message: bytes) -> bytes:
        """The messages of the answer, as they came."""
        assert self.transport is not None
        stream = next(self._streams)
        self._unread[stream] = bytearray()
        done = self._done[stream] = asyncio.get_running_loop().create_future()
        body = b"\0" + struct.pack(">I", len(message)) + message
        self.transport.write(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, END_STREAM, stream, body))
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                return await done
        finally:
            del self._done[stream], self._unread[stream]

    def data_received(self, data: bytes) -> None:
        self._received += data
        at = 0
        while len(self._received) - at >= 9:
            length = int.from_bytes(self._received[at : at + 3], "big")
            if len(self._received) - at - 9 < length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._received, at + 3)
            self._take(kind, flags, stream, bytes(self._received[at + 9 : at + 9 + length]))
            at += 9 + length
        del self._received[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self.transport is not None
        if kind == DATA and stream in self._unread:
            self._unread[stream] += payload
            self._renewable += len(payload)
            if self._renewable >= RENEW_BYTES:
                self.transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._renewable)))
                self._renewable = 0
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self.transport.write(frame(SETTINGS, ACK, 0))
        done = self._done.get(stream)
        is_end = kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
        if done is not None and is_end and not done.done():
            done.set_result(bytes(self._unread[stream]))


def request_message(number: int) -> bytes:
    """The RunRequest that says what the body over HTTP says."""
    body = json.loads(request_body(number, AGENT, users=USERS))
    prompt = body.pop("prompt", None)
    if prompt is not None:
        body["segments"] = [{"role": "user", "content": [{"type": "trusted-text", "text": prompt}]}]
    return message_class("RunRequest")(**body).SerializeToString()


async def main(address: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
    headers = header_block(f"/{SERVICE}/Run", address, os.environ.get("LOOMLOG_AUTH_TOKEN", ""))
    numbers = count()

    async def run_once() -> None:
        answer = await connection.call(headers, request_message(next(numbers)))
        if DONE not in answer:
            raise RuntimeError(f"no done event: {answer[:300]!r}")

    measured = await measure(run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(os.environ["LOOMLOG_GRPC_ADDR"], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
