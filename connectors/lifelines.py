"""Lifelines: sockets that are open as long as a process lives, so that others learn of its death at once.

A process listens, greets whoever connects with its *life* (a name no other process and no later start has) and then
says nothing more. When it dies, by whatever signal, the kernel closes its sockets and every holder reads the end of the
stream. A planned end says `released` first. That is the whole protocol; nothing that is received is looked at.

A broken connection is no dead process, so the holder connects once more: refused, or greeted by another life, means
dead; accepted means that it carries on. Who was never greeted knows nothing: the address may be another machine's
loopback. A process that is stopped keeps its sockets, and a machine that loses its power closes none: those two are
left to the consumer group.

Before: services/runtime/main.py listens. After: services/stream/standby.py holds.
"""

import asyncio
import socket
import time
from typing import cast

RELEASED = b"released"
CONNECT_S = 1.0
"""A machine that does not answer within this is not there to refuse, and nothing is known of its processes."""
PAUSE_S = 1.0
"""Between tries to reach one that could not be reached."""
FIRST_PAUSE_S = 0.005
"""After a connection that broke before the greeting, or soon after it; twice as long each time, up to PAUSE_S. A dying
process may still accept, and who accepts and hangs up must not be called in a loop."""
MAX_HELD = 1_000
"""Connections one process keeps open; every other process of the group has one."""
MAX_LINE_BYTES = 256


class Lifeline:
    """This process's own. `address` is host:port, as others reach it; port 0 is any free one."""

    def __init__(self, address: str, life: str) -> None:
        self.name = ""
        """host:port/life once it is open; what Claims tell."""
        self._address = address
        self._life = life
        self._server: asyncio.Server | None = None
        self._held: set[asyncio.Transport] = set()

    async def open(self) -> None:
        """Listens. Raises OSError when that address cannot be listened on."""
        host, _, port = self._address.rpartition(":")
        listening = asyncio.get_running_loop().create_server(
            lambda: _Holder(self._held, self._life), host.strip("[]"), int(port)
        )
        try:
            self._server = await listening
        except OSError as error:
            raise OSError(f"cannot listen on {self._address}: {error}; set LOOMLOG_STANDBY_ADDR, or off") from error
        bound = self._server.sockets[0].getsockname()[1]
        self.name = f"{host}:{bound}/{self._life}"

    def release(self) -> None:
        """A planned end: the holders are told, and nobody takes it for a death."""
        for transport in self._held:
            transport.write(RELEASED + b"\n")
        self._stop_listening()

    async def close(self) -> None:
        """Breaks what is still held."""
        self._stop_listening()
        for transport in list(self._held):
            transport.close()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _Holder(asyncio.Protocol):
    """One connection of somebody who wants to know."""

    def __init__(self, held: set[asyncio.Transport], life: str) -> None:
        self._held = held
        self._life = life
        self._transport: asyncio.Transport | None = None

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's only looks like one
        if len(self._held) >= MAX_HELD:
            transport.abort()
            return
        self._transport = transport
        self._held.add(transport)
        transport.write(self._life.encode() + b"\n")

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._held.discard(self._transport)


async def until_gone(name: str) -> bool:
    """Holds the lifeline of that name (host:port/life): True once its process has died, False once it let go.

    Does not return while nothing is known, which is for ever when it could not be reached once.
    """
    address, _, life = name.rpartition("/")
    host, _, port = address.rpartition(":")
    if not (host and life and port.isascii() and port.isdigit()):
        await asyncio.get_running_loop().create_future()
    met, pause_s = False, FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        said = await _hold(host.strip("[]"), int(port), life.encode())
        if said == RELEASED:
            return False
        if said == life.encode():
            met = True
            if time.monotonic() - began > PAUSE_S:
                pause_s = FIRST_PAUSE_S
                continue
        elif said is not None and met:
            return True
        await asyncio.sleep(pause_s if met else PAUSE_S)
        pause_s = min(PAUSE_S, 2 * pause_s)


async def _hold(host: str, port: int, life: bytes) -> bytes | None:
    """The last that was said there: RELEASED, or its life when the connection broke after the greeting.

    Anything else when the process of that life is not there any more (refused: empty); None when that cannot be told.
    """
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_LINE_BYTES)
    except ConnectionRefusedError:
        return b""
    except (OSError, TimeoutError):
        return None
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    said: bytes | None = None
    try:
        # No time-out: one that is stopped greets when it goes on.
        said = (await reader.readline()).strip() or None
        if said == life:
            said = (await reader.readline()).strip() or said
    except (OSError, ValueError):
        pass  # broken; or a line that is none of ours, from whoever listens there now
    finally:
        writer.close()
    return said
