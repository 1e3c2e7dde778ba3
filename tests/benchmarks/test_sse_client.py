"""The client of the figures: what it sees must be what was sent, however the bytes are cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.benchmarks.sse_client import Client, Frame

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FRAMES = (
    b'event: agent\ndata: {"run_id":"r_1"}\n\n',
    b'event: text\nid: 513\ndata: {"text":"a"}\n\n: keepalive\n\n',
    b"event: done\nid: 768\ndata: {}\n\n",
)


def chunked(*bodies: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(body), body) for body in (*bodies, b""))


@asynccontextmanager
async def server(answer: bytes, size: int) -> AsyncIterator[Client]:
    """Answers every request with those bytes, `size` of them at a time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client has left
            while await reader.readuntil(b"\r\n\r\n"):
                for at in range(0, len(answer), size):
                    writer.write(answer[at : at + size])
                    await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client("{}:{}".format(*made.sockets[0].getsockname()))
    try:
        yield client
    finally:
        client.close()
        made.close()
        async with asyncio.timeout(5):
            await left.wait()


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_every_frame_is_seen_once_and_whole_however_the_bytes_are_cut(size: int) -> None:
    for _ in range(2):
        seen: list[Frame] = []
        async with server(chunked(*FRAMES), size) as client:
            for _ in range(2):  # the second over the same connection
                seen.clear()
                status, body = await client.send(client.message("GET", "/v1/runs/r_1/stream"), seen.append)
        assert (status, body) == (200, b"")
        assert [(frame.type, frame.seq, frame.data) for frame in seen] == [
            ("agent", None, b'{"run_id":"r_1"}'),
            ("text", 513, b'{"text":"a"}'),
            ("done", 768, b"{}"),
        ]


async def test_an_answer_with_a_length_is_given_with_its_status() -> None:
    async with server(b'HTTP/1.1 409 Conflict\r\nContent-Length: 9\r\n\r\n{"a":"b"}', 3) as client:
        assert await client.send(client.message("GET", "/")) == (409, b'{"a":"b"}')
