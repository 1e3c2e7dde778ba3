import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from loomlog.services.runtime.telemetry import metrics_server
from loomlog.services.runtime.telemetry.metrics_server import (
    ADDRESS,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    bind_socket,
    serve,
)

WAIT_S = 30.0


@contextlib.asynccontextmanager
async def serving(page: bytes = b"loomlog_x 1\n") -> AsyncIterator[int]:
    listening = bind_socket(0)
    port = listening.getsockname()[1]
    task = asyncio.create_task(serve(listening, lambda: page))
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.wait([task])


async def asked(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def request(line: str, host: str = "127.0.0.1:18911") -> bytes:
    return f"{line} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n".encode()


async def test_metrics_are_served_with_the_type_prometheus_expects() -> None:
    async with serving() as port:
        answer = await asked(port, request("GET /metrics"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=" in head
    assert b"Content-Length: 12\r\n" in head
    assert body == b"loomlog_x 1\n"


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET /metrics?a=1", "localhost:1", b"200"),
        ("HEAD /metrics", "127.0.0.1", b"200"),
        ("GET /", "127.0.0.1:1", b"404"),
        ("POST /metrics", "127.0.0.1:1", b"405"),
        ("GET /metrics", "evil.example:18911", b"421"),
        ("GET /metrics", "evil.example", b"421"),
        ("GET /metrics", "", b"421"),
        ("nonsense", "127.0.0.1", b"404"),
    ],
)
async def test_only_the_page_is_served_and_only_under_a_name_of_this_machine(
    line: str, host: str, status: bytes
) -> None:
    async with serving() as port:
        answer = await asked(port, request(line, host))
    assert answer.split(b" ")[1] == status
    if line.startswith("HEAD") or status != b"200":
        assert b"loomlog_x" not in answer


async def test_a_request_without_a_host_is_refused() -> None:
    async with serving() as port:
        assert (await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")).split(b" ")[1] == b"421"


async def test_a_head_that_is_too_long_or_never_ends_is_closed_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "READ_TIMEOUT_S", 0.05)
    async with serving() as port:
        assert await asked(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (2 * MAX_HEAD_BYTES)) == b""
        assert await asked(port, b"GET /metr") == b""
        assert (await asked(port, request("GET /metrics"))).startswith(b"HTTP/1.1 200")


async def test_connections_beyond_the_bound_are_closed_and_the_others_served() -> None:
    async with serving() as port, asyncio.timeout(WAIT_S):
        idle = [await asyncio.open_connection(ADDRESS, port) for _ in range(MAX_CONNECTIONS)]
        assert await asked(port, request("GET /metrics")) == b""
        reader, writer = idle[0]
        writer.write(request("GET /metrics"))
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        for _, open_writer in idle:
            open_writer.close()


def test_the_next_free_port_is_taken() -> None:
    with bind_socket(0) as first:
        port = first.getsockname()[1]
        with bind_socket(port) as second:
            assert port < second.getsockname()[1] < port + metrics_server.PORTS_TRIED


def test_a_port_is_taken_again_after_its_connections_ended() -> None:
    with bind_socket(0) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection((ADDRESS, port)):
            listening.accept()[0].close()  # the server closes first, so its end lingers
    with bind_socket(port) as again:
        assert again.getsockname()[1] == port


def test_without_a_free_port_the_error_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "PORTS_TRIED", 1)
    with bind_socket(0) as taken, pytest.raises(OSError, match="LOOMLOG_RUNTIME_METRICS_PORT"):
        bind_socket(taken.getsockname()[1])
