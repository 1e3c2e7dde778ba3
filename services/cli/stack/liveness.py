"""Whether what runs also moves: a process that hangs is there, keeps its ports open and does nothing.

    suspended   the operating system says that it is stopped (SIGSTOP, a debugger)
    silent      it listens, but its event loop answers nobody

The second is asked of runtimes, at whatever port they listen on: each of theirs says something to whoever connects
and sends a line (services/runtime/telemetry/metrics_server.py, connectors/process/liveness_sockets.py). API, insights
and projector are asked elsewhere (services/cli/doctor/status.py), and the auditor, which listens nowhere, is known by
what it signs (services/cli/log/verification.py).

Before: services/cli/doctor/status.py. After: the operating system.
"""

import asyncio
from typing import Literal

import psutil

StallState = Literal["suspended", "silent"]
RESPONSE_TIMEOUT_S = 3.0
"""After as long without a word the group takes a runtime for dead, too."""
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}


async def find_stall(pid: int, *, listens: bool) -> StallState | None:
    """Why a process does nothing; None when it moves, has ended, or nobody can say. `listens`: its ports are asked."""
    if await asyncio.to_thread(is_suspended, pid):
        return "suspended"
    places = await asyncio.to_thread(_listening_addresses, pid) if listens else []
    if not places or any(await asyncio.gather(*(_responds(*place) for place in places))):
        return None
    return "silent"


def is_suspended(pid: int) -> bool:
    """Whether somebody has stopped the process without ending it."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _listening_addresses(pid: int) -> list[tuple[str, int]]:
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return []  # gone, or another user's
    places = {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN}
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
