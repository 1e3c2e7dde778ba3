"""Lifelines: sockets that are open as long as a process lives, so that others learn of its death at once.

A process listens, greets whoever connects with its *life* (a name no other process and no later start has) and says
nothing more unless it is asked. When it dies, by whatever signal, the kernel closes its sockets and every holder reads
the end of the stream. A planned end says `released` first.

Who is to own a partition next asks for it: `yield 3`, and the answer `yielded 3` comes once the calls under way there
have ended and are in the log. That is the whole protocol.

A broken connection is no dead process, so the holder connects once more: refused, or greeted by another life, means
dead; accepted means that it carries on. Who was never greeted knows nothing: the address may be another machine's
loopback. A process that is stopped keeps its sockets, and a machine that loses its power closes none: those two are
left to the consumer group.

Before: services/runtime/main.py listens. After: services/stream/ownership/standby.py holds.
"""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

RELEASED = b"released"
CONNECT_TIMEOUT_S = 1.0
"""A machine that does not answer within this is not there to refuse, and nothing is known of its processes."""
GREETING_TIMEOUT_S = 0.5
"""Who asks does not wait longer for a greeting: a process that is stopped accepts, because its kernel does."""
RECONNECT_DELAY_S = 1.0
"""Between tries to reach one that could not be reached."""
FIRST_RECONNECT_DELAY_S = 0.005
"""After a connection that broke before the greeting, or soon after it; twice as long each time, up to PAUSE_S. A dying
process may still accept, and who accepts and hangs up must not be called in a loop."""
MAX_CONNECTIONS = 1_000
"""Connections one process keeps open; every other process of the group has one."""
MAX_LINE_BYTES = 256
HANDOVER_REQUEST = re.compile(rb"yield (\d{1,9})")


class LivenessServer:
    """This process's own. `address` is host:port, as others reach it; port 0 is any free one."""

    def __init__(self, address: str, incarnation: str) -> None:
        self.endpoint = ""
        """host:port/life once it is open; what Claims tell."""
        self.on_handover_request: Callable[[int], Awaitable[None]] = _ignore_request
        """Gives up a partition when that is right; returns when it is given up, or when that will not happen."""
        self._address = address
        self._incarnation = incarnation
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Transport] = set()

    async def open(self) -> None:
        """Listens. Raises OSError when that address cannot be listened on."""
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
        self.endpoint = f"{host}:{bound}/{self._incarnation}"

    def announce_shutdown(self) -> None:
        """A planned end: the holders are told, and nobody takes it for a death."""
        for transport in self._connections:
            transport.write(RELEASED + b"\n")
        self._stop_listening()

    async def close(self) -> None:
        """Breaks what is still held."""
        self._stop_listening()
        for transport in list(self._connections):
            transport.close()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _LivenessConnection(asyncio.Protocol):
    """One connection of somebody who wants to know."""

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
        transport = cast("asyncio.Transport", made)  # uvloop's only looks like one
        if len(self._connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._transport = transport
        self._connections.add(transport)
        transport.write(self._incarnation.encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        """One question of one line; whatever else comes is not looked at."""
        if self._handover_task is not None or self._transport is None or len(self._received) > MAX_LINE_BYTES:
            return
        self._received += data
        line, ended, _ = self._received.partition(b"\n")
        found = HANDOVER_REQUEST.fullmatch(line)
        if ended and found is not None:
            self._handover_task = asyncio.get_running_loop().create_task(self._hand_over(int(found[1])))

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
    """Asks the process of that name for a partition and waits until it has given it up.

    `yielded`; or why there is nothing to wait for: `gone` (nobody listens there, or another life does), `silent` (it
    does not greet: stopped, or not reachable from here), `late` (not given up within `timeout_s`).
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
            # The end of the stream is an answer too: whoever has ended holds nothing any more.
            return "yielded" if await reader.readline() else "gone"
    except TimeoutError:
        return missing
    except (OSError, ValueError):
        return "gone"
    finally:
        writer.close()


def _ignore_greeting() -> None: ...


async def wait_for_disconnect(name: str, on_greeting: Callable[[], None] = _ignore_greeting) -> bool:
    """Holds the lifeline of that name (host:port/life): True once its process has died, False once it let go.

    `greeted` is called when it has greeted: from then on its death is noticed. Does not return while nothing is known,
    which is for ever when it could not be reached once.
    """
    place = _parse_endpoint(name)
    if place is None:
        return bool(await asyncio.get_running_loop().create_future())  # which nobody sets
    met, pause_s = False, FIRST_RECONNECT_DELAY_S
    while True:
        began = time.monotonic()
        said = await _read_last_line(place, on_greeting)
        if said == RELEASED:
            return False
        if said == place.incarnation:
            met = True
            if time.monotonic() - began > RECONNECT_DELAY_S:
                pause_s = FIRST_RECONNECT_DELAY_S
                continue
        elif said is not None and met:
            return True
        await asyncio.sleep(pause_s if met else RECONNECT_DELAY_S)
        pause_s = min(RECONNECT_DELAY_S, 2 * pause_s)


class _Endpoint(NamedTuple):
    host: str
    port: int
    incarnation: bytes


def _parse_endpoint(name: str) -> _Endpoint | None:
    """host:port/life; None for what is no such name, from whatever record it came."""
    address, _, life = name.rpartition("/")
    host, _, port = address.rpartition(":")
    if not (host and life and port.isascii() and port.isdigit()):
        return None
    return _Endpoint(host.strip("[]"), int(port), life.encode())


async def _open_connection(endpoint: _Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError, or TimeoutError after CONNECT_S."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return await asyncio.open_connection(endpoint.host, endpoint.port, limit=MAX_LINE_BYTES)


async def _read_last_line(endpoint: _Endpoint, on_greeting: Callable[[], None]) -> bytes | None:
    """The last that was said there: RELEASED, or its life when the connection broke after the greeting.

    Anything else when the process of that life is not there any more (refused: empty); None when that cannot be told.
    """
    try:
        reader, writer = await _open_connection(endpoint)
    except ConnectionRefusedError:
        return b""
    except (OSError, TimeoutError):
        return None
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    said: bytes | None = None
    try:
        # No time-out: one that is stopped greets when it goes on.
        said = (await reader.readline()).strip() or None
        if said == endpoint.incarnation:
            on_greeting()
            said = (await reader.readline()).strip() or said
    except (OSError, ValueError):
        pass  # broken; or a line that is none of ours, from whoever listens there now
    finally:
        writer.close()
    return said
