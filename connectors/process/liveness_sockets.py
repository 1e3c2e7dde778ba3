"""Liveness sockets: open as long as a process lives, so that others learn of its death at once.

A process listens, greets each connection with its *incarnation* (a name unique to this start of this process) and sends
nothing more unless asked. When it dies, by whatever signal, the kernel closes its sockets and every holder reads the
end of the stream. A planned shutdown sends `released` first.

The next owner of a partition requests it: `yield 3`; the response `yielded 3` follows once the calls in progress there
have ended and are in the log. That is the whole protocol.

A broken connection does not prove death, so the holder connects once more: refused, or greeted by another incarnation,
means dead; accepted means alive. Without a first greeting nothing is known: the address may be another machine's
loopback. A stopped process keeps its sockets, and a machine that loses power closes none: both cases are left to the
consumer group.

Before: services/runtime/main.py listens. After: services/stream/ownership/standby.py holds.
"""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from loomlog.connectors.configuration.setting_types import ALL_INTERFACES

RELEASED = b"released"
CONNECT_TIMEOUT_S = 1.0
"""Connection timeout; after it the state of that machine's processes is unknown."""
GREETING_TIMEOUT_S = 0.5
"""Time to wait for a greeting: a stopped process accepts connections, because its kernel does."""
RECONNECT_DELAY_S = 1.0
"""Pause between attempts to reach a process that could not be reached."""
FIRST_RECONNECT_DELAY_S = 0.005
"""First pause after a connection that broke before the greeting, or soon after it; doubled each time, up to
RECONNECT_DELAY_S. A dying process may still accept, and a peer that accepts and closes must not cause a busy loop.
"""
MAX_CONNECTIONS = 1_000
"""Maximum open connections of one process; every other process of the group has one."""
MAX_LINE_BYTES = 256
HANDOVER_REQUEST = re.compile(rb"yield (\d{1,9})")


class LivenessServer:
    """The socket of this process. `address` is host:port, as others reach it; port 0 chooses a free one.

    The host 0.0.0.0 listens on every interface; claims then name the address of this machine's host name.
    """

    def __init__(self, address: str, incarnation: str) -> None:
        self.endpoint = ""
        """host:port/incarnation once it is open; written into claims."""
        self.on_handover_request: Callable[[int], Awaitable[None]] = _ignore_request
        """Gives up a partition if appropriate; returns when it is given up, or when that will not happen."""
        self._address = address
        self._incarnation = incarnation
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Transport] = set()

    async def open(self) -> None:
        """Listen. Raises OSError when the address cannot be listened on."""
        host, _, port = self._address.rpartition(":")
        listening = asyncio.get_running_loop().create_server(
            lambda: _LivenessConnection(
                self._connections, self._incarnation, lambda number: self.on_handover_request(number)
            ),
            host.strip("[]"),
            int(port),
        )
        try:
            self._server = await listening
        except OSError as error:
            raise OSError(f"cannot listen on {self._address}: {error}; set LOOMLOG_STANDBY_ADDR, or off") from error
        bound = self._server.sockets[0].getsockname()[1]
        if host in ALL_INTERFACES:
            host = await _own_address()
        self.endpoint = f"{host}:{bound}/{self._incarnation}"

    def announce_shutdown(self) -> None:
        """Announce a planned shutdown, so that holders do not take it for a death."""
        for transport in self._connections:
            transport.write(RELEASED + b"\n")
        self._stop_listening()

    async def close(self) -> None:
        """Close the remaining connections."""
        self._stop_listening()
        for transport in list(self._connections):
            transport.close()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


async def _own_address() -> str:
    """Return the address of this machine's host name: in a container, the container's. Raises OSError."""
    addresses = await asyncio.get_running_loop().getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    family, *_, address = addresses[0]
    return f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])


class _LivenessConnection(asyncio.Protocol):
    """One connection of a holder."""

    def __init__(
        self,
        connections: set[asyncio.Transport],
        incarnation: str,
        on_handover_request: Callable[[int], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._incarnation = incarnation
        self._on_handover_request = on_handover_request
        self._handover_task: asyncio.Task[None] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's transport is no asyncio.Transport
        if len(self._connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._transport = transport
        self._connections.add(transport)
        transport.write(self._incarnation.encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        """Handle a request of one line; anything else is ignored."""
        if self._handover_task is not None or self._transport is None or len(self._received) > MAX_LINE_BYTES:
            return
        self._received += data
        line, ended, _ = self._received.partition(b"\n")
        request = HANDOVER_REQUEST.fullmatch(line)
        if ended and request is not None:
            self._handover_task = asyncio.get_running_loop().create_task(self._hand_over(int(request[1])))

    async def _hand_over(self, number: int) -> None:
        await self._on_handover_request(number)
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(b"yielded %d\n" % number)

    def connection_lost(self, error: Exception | None) -> None:
        if self._handover_task is not None:
            self._handover_task.cancel()
        if self._transport is not None:
            self._connections.discard(self._transport)


async def _ignore_request(number: int) -> None: ...


async def request_handover(name: str, number: int, *, timeout_s: float) -> str:
    """Request a partition from the process at that endpoint and wait until it has given it up.

    Returns `yielded`; or why waiting is useless: `gone` (refused, or another incarnation), `silent` (no greeting:
    stopped, or not reachable from here), `late` (not given up within `timeout_s`).
    """
    place = _parse_endpoint(name)
    if place is None:
        return "silent"
    try:
        reader, writer = await _open_connection(place)
    except ConnectionRefusedError:
        return "gone"
    except (OSError, TimeoutError):
        return "silent"
    missing = "silent"
    try:
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            greeting = await reader.readline()
        missing = "late"
        if greeting.strip() != place.incarnation:
            return "gone"
        writer.write(b"yield %d\n" % number)
        async with asyncio.timeout(timeout_s):
            # The end of the stream is an answer too: an ended process holds nothing.
            return "yielded" if await reader.readline() else "gone"
    except TimeoutError:
        return missing
    except (OSError, ValueError):
        return "gone"
    finally:
        writer.close()


def _ignore_greeting() -> None: ...


async def wait_for_disconnect(name: str, on_greeting: Callable[[], None] = _ignore_greeting) -> bool:
    """Hold the liveness socket of an endpoint (host:port/incarnation): True once its process has died, False once it
    released.

    `on_greeting` is called after the greeting: from then on its death is noticed. Does not return while nothing is
    known, which is forever when the endpoint could not be reached once.
    """
    place = _parse_endpoint(name)
    if place is None:
        return bool(await asyncio.get_running_loop().create_future())  # never set
    met, pause_s = False, FIRST_RECONNECT_DELAY_S
    while True:
        began = time.monotonic()
        line = await _read_last_line(place, on_greeting)
        if line == RELEASED:
            return False
        if line == place.incarnation:
            met = True
            if time.monotonic() - began > RECONNECT_DELAY_S:
                pause_s = FIRST_RECONNECT_DELAY_S
                continue
        elif line is not None and met:
            return True
        await asyncio.sleep(pause_s if met else RECONNECT_DELAY_S)
        pause_s = min(RECONNECT_DELAY_S, 2 * pause_s)


class _Endpoint(NamedTuple):
    host: str
    port: int
    incarnation: bytes


def _parse_endpoint(name: str) -> _Endpoint | None:
    """Parse host:port/incarnation; None for anything else, whatever record it came from."""
    address, _, life = name.rpartition("/")
    host, _, port = address.rpartition(":")
    if not (host and life and port.isascii() and port.isdigit()):
        return None
    return _Endpoint(host.strip("[]"), int(port), life.encode())


async def _open_connection(endpoint: _Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection. Raises OSError, or TimeoutError after CONNECT_TIMEOUT_S."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return await asyncio.open_connection(endpoint.host, endpoint.port, limit=MAX_LINE_BYTES)


async def _read_last_line(endpoint: _Endpoint, on_greeting: Callable[[], None]) -> bytes | None:
    """Return the last line received: RELEASED, or the incarnation when the connection broke after the greeting.

    Any other line means that this incarnation no longer exists (refused: empty); None when that is unknown.
    """
    try:
        reader, writer = await _open_connection(endpoint)
    except ConnectionRefusedError:
        return b""
    except (OSError, TimeoutError):
        return None
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line: bytes | None = None
    try:
        # No timeout: a stopped process greets when it continues.
        line = (await reader.readline()).strip() or None
        if line == endpoint.incarnation:
            on_greeting()
            line = (await reader.readline()).strip() or line
    except (OSError, ValueError):
        pass  # broken; or an invalid line from another program that listens there now
    finally:
        writer.close()
    return line
