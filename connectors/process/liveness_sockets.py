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
CONNECT_S = 1.0
"""A machine that does not answer within this is not there to refuse, and nothing is known of its processes."""
GREETING_S = 0.5
"""Who asks does not wait longer for a greeting: a process that is stopped accepts, because its kernel does."""
PAUSE_S = 1.0
"""Between tries to reach one that could not be reached."""
FIRST_PAUSE_S = 0.005
"""After a connection that broke before the greeting, or soon after it; twice as long each time, up to PAUSE_S. A dying
process may still accept, and who accepts and hangs up must not be called in a loop."""
MAX_HELD = 1_000
"""Connections one process keeps open; every other process of the group has one."""
MAX_LINE_BYTES = 256
QUESTION = re.compile(rb"yield (\d{1,9})")


class Lifeline:
    """This process's own. `address` is host:port, as others reach it; port 0 is any free one."""

    def __init__(self, address: str, life: str) -> None:
        self.name = ""
        """host:port/life once it is open; what Claims tell."""
        self.asked: Callable[[int], Awaitable[None]] = _nobody
        """Gives up a partition when that is right; returns when it is given up, or when that will not happen."""
        self._address = address
        self._life = life
        self._server: asyncio.Server | None = None
        self._held: set[asyncio.Transport] = set()

    async def open(self) -> None:
        """Listens. Raises OSError when that address cannot be listened on."""
        host, _, port = self._address.rpartition(":")
        listening = asyncio.get_running_loop().create_server(
            lambda: _Holder(self._held, self._life, lambda number: self.asked(number)), host.strip("[]"), int(port)
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

    def __init__(self, held: set[asyncio.Transport], life: str, asked: Callable[[int], Awaitable[None]]) -> None:
        self._held = held
        self._life = life
        self._asked = asked
        self._answering: asyncio.Task[None] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's only looks like one
        if len(self._held) >= MAX_HELD:
            transport.abort()
            return
        self._transport = transport
        self._held.add(transport)
        transport.write(self._life.encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        """One question of one line; whatever else comes is not looked at."""
        if self._answering is not None or self._transport is None or len(self._received) > MAX_LINE_BYTES:
            return
        self._received += data
        line, ended, _ = self._received.partition(b"\n")
        found = QUESTION.fullmatch(line)
        if ended and found is not None:
            self._answering = asyncio.get_running_loop().create_task(self._answer(int(found[1])))

    async def _answer(self, number: int) -> None:
        await self._asked(number)
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(b"yielded %d\n" % number)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        if self._transport is not None:
            self._held.discard(self._transport)


async def _nobody(number: int) -> None: ...


async def ask_for(name: str, number: int, *, timeout_s: float) -> str:
    """Asks the process of that name for a partition and waits until it has given it up.

    `yielded`; or why there is nothing to wait for: `gone` (nobody listens there, or another life does), `silent` (it
    does not greet: stopped, or not reachable from here), `late` (not given up within `timeout_s`).
    """
    place = _place(name)
    if place is None:
        return "silent"
    try:
        reader, writer = await _connected(place)
    except ConnectionRefusedError:
        return "gone"
    except (OSError, TimeoutError):
        return "silent"
    missing = "silent"
    try:
        async with asyncio.timeout(GREETING_S):
            greeting = await reader.readline()
        missing = "late"
        if greeting.strip() != place.life:
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


def _nobody_asks() -> None: ...


async def until_gone(name: str, greeted: Callable[[], None] = _nobody_asks) -> bool:
    """Holds the lifeline of that name (host:port/life): True once its process has died, False once it let go.

    `greeted` is called when it has greeted: from then on its death is noticed. Does not return while nothing is known,
    which is for ever when it could not be reached once.
    """
    place = _place(name)
    if place is None:
        return bool(await asyncio.get_running_loop().create_future())  # which nobody sets
    met, pause_s = False, FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        said = await _hold(place, greeted)
        if said == RELEASED:
            return False
        if said == place.life:
            met = True
            if time.monotonic() - began > PAUSE_S:
                pause_s = FIRST_PAUSE_S
                continue
        elif said is not None and met:
            return True
        await asyncio.sleep(pause_s if met else PAUSE_S)
        pause_s = min(PAUSE_S, 2 * pause_s)


class _Place(NamedTuple):
    host: str
    port: int
    life: bytes


def _place(name: str) -> _Place | None:
    """host:port/life; None for what is no such name, from whatever record it came."""
    address, _, life = name.rpartition("/")
    host, _, port = address.rpartition(":")
    if not (host and life and port.isascii() and port.isdigit()):
        return None
    return _Place(host.strip("[]"), int(port), life.encode())


async def _connected(place: _Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError, or TimeoutError after CONNECT_S."""
    async with asyncio.timeout(CONNECT_S):
        return await asyncio.open_connection(place.host, place.port, limit=MAX_LINE_BYTES)


async def _hold(place: _Place, greeted: Callable[[], None]) -> bytes | None:
    """The last that was said there: RELEASED, or its life when the connection broke after the greeting.

    Anything else when the process of that life is not there any more (refused: empty); None when that cannot be told.
    """
    try:
        reader, writer = await _connected(place)
    except ConnectionRefusedError:
        return b""
    except (OSError, TimeoutError):
        return None
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    said: bytes | None = None
    try:
        # No time-out: one that is stopped greets when it goes on.
        said = (await reader.readline()).strip() or None
        if said == place.life:
            greeted()
            said = (await reader.readline()).strip() or said
    except (OSError, ValueError):
        pass  # broken; or a line that is none of ours, from whoever listens there now
    finally:
        writer.close()
    return said
