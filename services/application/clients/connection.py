"""One connection of a client: the wire under it, what comes over it and what is asked of it, in one queue.

Before: connections.py takes the connection. After: a transport's socket (services/api/client_endpoints.py).
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from loomlog.schemas.generated.stream_records import ClientRegistered, RemoteToolRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.clients import limits
from loomlog.services.core.clients.session import ClientSession, next_timeout_ms


class ClientDisconnected(Exception):
    """The client is not there any more."""


class ClientSocket(Protocol):
    """A connection of a transport; text frames both ways."""

    async def receive(self) -> str | None:
        """The next frame; None for one that is no text. Raises Gone."""
        ...

    async def send(self, text: str) -> None:
        """Raises Gone."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Raises Gone."""
        ...


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """What came over the wire; None for bytes."""

    text: str | None


class SocketClosed:
    """The wire has ended."""


ConnectionEvent = FrameReceived | SocketClosed | RemoteToolRequest


class ClientConnection:
    """A client that is connected. `state` is what was said so far; `offer` as it was last told to the runtimes."""

    def __init__(self, caller: Caller, session: ClientSession, socket: ClientSocket) -> None:
        self.caller = caller
        self.session = session
        self.registration: ClientRegistered | None = None
        self.socket = socket
        self._items: asyncio.Queue[ConnectionEvent] = asyncio.Queue(maxsize=2 * limits.CALLS_MAX)
        self._frame_handled = asyncio.Event()

    @property
    def connection_id(self) -> str:
        return self.session.connection_id

    @property
    def principal(self) -> tuple[str, str]:
        """Whose runs may ask it: tenant and subject."""
        return self.caller.tenant, self.caller.subject

    async def read(self) -> None:
        """Takes frames of the client, each after the one before it was dealt with, until it is gone."""
        try:
            while True:
                self._frame_handled.clear()
                await self._items.put(FrameReceived(await self.socket.receive()))
                await self._frame_handled.wait()
        except ClientDisconnected:
            await self._items.put(SocketClosed())

    def resume_reading(self) -> None:
        """The last frame was dealt with."""
        self._frame_handled.set()

    def deliver(self, request: RemoteToolRequest) -> bool:
        """Whether there is room for the call."""
        try:
            self._items.put_nowait(request)
        except asyncio.QueueFull:
            return False
        return True

    async def next(self, now_ms: int) -> ConnectionEvent | None:
        """What comes first; None when it is time for something."""
        at_ms = next_timeout_ms(self.session)
        try:
            async with asyncio.timeout(None if at_ms is None else max(0, at_ms - now_ms) / 1000):
                return await self._items.get()
        except TimeoutError:
            return None

    def undelivered(self) -> list[RemoteToolRequest]:
        """Calls that nobody looked at."""
        requests: list[RemoteToolRequest] = []
        while not self._items.empty():
            if isinstance(item := self._items.get_nowait(), RemoteToolRequest):
                requests.append(item)
        return requests


async def send_frame(socket: ClientSocket, text: str) -> None:
    """Sends a frame. Raises Gone, also when the client does not take it in time."""
    await _send_with_timeout(socket.send(text))


async def close_socket(socket: ClientSocket, code: int, reason: str) -> None:
    """Ends the connection. Raises as `send_frame`."""
    await _send_with_timeout(socket.close(code, reason))


async def _send_with_timeout(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(limits.SEND_TIMEOUT_S):
            await sending
    except TimeoutError as error:
        raise ClientDisconnected("the client reads too slowly") from error
