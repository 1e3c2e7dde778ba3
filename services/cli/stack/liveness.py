"""Detects processes that run but hang: they keep their ports open and make no progress.

    suspended   the operating system reports it as stopped (SIGSTOP, a debugger)
    silent      it listens, but its event loop does not answer

The second applies to runtimes, on whatever port they listen: each answers a connection that sends a line
(services/runtime/telemetry/metrics_server.py, connectors/process/liveness_sockets.py). API, insights and projector are
checked elsewhere (services/cli/doctor/status.py), and the auditor, which has no port, by its signatures
(services/application/log/verification.py).

Before: services/cli/doctor/status.py. After: the operating system.
"""

import asyncio
from typing import Literal

import psutil

StallState = Literal["suspended", "silent"]
RESPONSE_TIMEOUT_S = 3.0
"""Time to wait for an answer; the group declares a runtime dead after the same time."""
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
HTTP = b"HTTP"
PAGE_BYTES_MAX = 1024 * 1024
"""Bytes read of a page of metrics; one has some ten kilobytes."""
READ_BYTES = 64 * 1024
WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}


async def find_stall(pid: int, *, listens: bool) -> StallState | None:
    """Return why a process hangs; None when it works, has ended, or that is unknown. `listens`: its
    ports are checked.
    """
    if await asyncio.to_thread(is_suspended, pid):
        return "suspended"
    places = await asyncio.to_thread(_listening_addresses, pid) if listens else []
    if not places or any(await asyncio.gather(*(_responds(*place) for place in places))):
        return None
    return "silent"


async def read_responses(pid: int) -> list[bytes]:
    """Return what each port of the process answers to a request for its metrics; nothing for one that is silent."""
    places = await asyncio.to_thread(_listening_addresses, pid)
    return [page for page in await asyncio.gather(*(_read_response(*place) for place in places)) if page]


async def _read_response(host: str, port: int) -> bytes:
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(REQUEST)
                page = await reader.read(len(HTTP))
                # A liveness socket greets and stays open.
                return page + await _read_rest(reader) if page == HTTP else b""
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while sum(map(len, chunks)) < PAGE_BYTES_MAX and (chunk := await reader.read(READ_BYTES)):
        chunks.append(chunk)
    return b"".join(chunks)


def is_suspended(pid: int) -> bool:
    """Return whether the process is stopped (SIGSTOP)."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _listening_addresses(pid: int) -> list[tuple[str, int]]:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return []  # ended, or another user's
    places = {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}
    return sorted((WILDCARD_ADDRESSES.get(host, host), port) for host, port in places)


async def _responds(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(REQUEST)
                return bool(await reader.read(1))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
