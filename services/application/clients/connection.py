"""One connection of a client: its socket, with received frames and tool calls for the client in one queue.

Before: connections.py accepts the connection. After: a transport's socket (services/api/client_endpoints.py).
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
    """The client has disconnected."""


class ClientSocket(Protocol):
    """The connection of a transport; text frames in both directions."""

    async def receive(self) -> str | None:
        """Return the next frame; None for a frame that is not text. Raises ClientDisconnected."""
        ...

    async def send(self, text: str) -> None:
        """Send a text frame. Raises ClientDisconnected."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Close the connection. Raises ClientDisconnected."""
        ...


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A frame received over the socket; None for bytes."""

    text: str | None


class SocketClosed:
    """The socket was closed."""


ConnectionEvent = FrameReceived | SocketClosed | RemoteToolRequest


class ClientConnection:
    """A connected client. `session` is the protocol state; `registration` is the last one published to the runtimes."""

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
        """Tenant and subject whose runs may call the client's tools."""
        return self.caller.tenant, self.caller.subject

    async def read(self) -> None:
        """Read frames until the client disconnects, each after the previous one was handled."""
        try:
            while True:
                self._frame_handled.clear()
                await self._items.put(FrameReceived(await self.socket.receive()))
                await self._frame_handled.wait()
        except ClientDisconnected:
            await self._items.put(SocketClosed())

    def resume_reading(self) -> None:
        """Mark the last frame as handled."""
        self._frame_handled.set()

    def deliver(self, request: RemoteToolRequest) -> bool:
        """Queue a call for the client; returns False when the queue is full."""
        try:
            self._items.put_nowait(request)
        except asyncio.QueueFull:
            return False
        return True

    async def next(self, now_ms: int) -> ConnectionEvent | None:
        """Return the next event of the queue; None when a timeout of the session is due."""
        at_ms = next_timeout_ms(self.session)
        try:
            async with asyncio.timeout(None if at_ms is None else max(0, at_ms - now_ms) / 1000):
                return await self._items.get()
        except TimeoutError:
            return None

    def undelivered(self) -> list[RemoteToolRequest]:
        """Drain the queue; returns the calls in it that were not processed."""
        requests: list[RemoteToolRequest] = []
        while not self._items.empty():
            if isinstance(item := self._items.get_nowait(), RemoteToolRequest):
                requests.append(item)
        return requests


async def send_frame(socket: ClientSocket, text: str) -> None:
    """Send a frame. Raises ClientDisconnected, also when the client does not accept it before the timeout."""
    await _send_with_timeout(socket.send(text))


async def close_socket(socket: ClientSocket, code: int, reason: str) -> None:
    """Close the connection. Raises as `send_frame`."""
    await _send_with_timeout(socket.close(code, reason))


async def _send_with_timeout(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(limits.SEND_TIMEOUT_S):
            await sending
    except TimeoutError as error:
        raise ClientDisconnected("the client reads too slowly") from error
