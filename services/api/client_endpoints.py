"""Client tools, which clients execute, over a WebSocket (reference surfaces 1.10).

A browser cannot set an Authorization header here, so the token may be sent as the subprotocol `bearer.<token>` instead.
A page of another site cannot send a token by itself; without tokens, in open mode, pages from other machines are
rejected by their Origin.

Before: app.py has found the route. After: services/application/clients/connections.py.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loomlog.services.api.open_access import ENDED
from loomlog.services.api.responses import refusal_response
from loomlog.services.api.service import Service
from loomlog.services.application.authentication import Authenticator, require_access
from loomlog.services.application.clients.connection import ClientDisconnected
from loomlog.services.application.errors import bad_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import Access
from loomlog.services.core.clients.session import POLICY_VIOLATION, SUBPROTOCOL
from loomlog.services.core.refusals import Refused

BEARER_PREFIX = "bearer."
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
SWITCHING_PROTOCOLS = 101
REASON_BYTES_MAX = 120
"""Maximum bytes of a close frame's reason; RFC 6455 allows 123, and ours are ASCII."""


async def connect_client(service: Service, caller: Caller, request: Request) -> Response:
    """Respond to a request that is not a WebSocket handshake."""
    declined = Refused("upgrade_required", f"this is a WebSocket with the subprotocol {SUBPROTOCOL}")
    return refusal_response(declined, {"upgrade": "websocket", "connection": "upgrade"})


async def connect(service: Service, access: Access, scope: Scope, receive: Receive, send: Send) -> int:
    """Serve a WebSocket until it ends; return the status of the handshake response."""
    await receive()  # websocket.connect
    try:
        headers, offered = Headers(scope=scope), scope["subprotocols"]
        caller = await identify(service.authenticator, headers, offered)
        require_access(caller, access)
        if SUBPROTOCOL not in offered:
            raise bad_request(f"Sec-WebSocket-Protocol: expected {SUBPROTOCOL}")
        clients = service.application.clients
    except Refused as declined:
        return await _send_refusal(refusal_response(declined), send)
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL, "headers": []})
    socket = AsgiClientSocket(receive, send)
    release = service.open_access.hold(caller, socket.end)
    try:
        await clients.serve(caller, socket)
    finally:
        release()
    return SWITCHING_PROTOCOLS


async def identify(authenticator: Authenticator, headers: Mapping[str, str], subprotocols: list[str]) -> Caller:
    """Authenticate the connecting caller. A header takes precedence when present, even if it is wrong.

    Raises Refused.
    """
    authorization = headers.get("authorization")
    if authorization is None:
        tokens = [name.removeprefix(BEARER_PREFIX) for name in subprotocols if name.startswith(BEARER_PREFIX)]
        authorization = f"Bearer {tokens[0]}" if tokens else None
    caller = await authenticator.authenticate(authorization)
    if authenticator.open_mode and not is_local_origin(headers.get("origin", "")):
        raise Refused("forbidden_origin", "without tokens only pages of this machine may connect")
    return caller


def is_local_origin(origin: str) -> bool:
    """Programs send no Origin and browser extensions one of their own; pages from other machines send theirs."""
    place = urlsplit(origin)
    return place.scheme not in ("http", "https") or place.hostname in LOOPBACK_HOSTS


class AsgiClientSocket:
    """Protocol loomlog.services.application.clients.connection.ClientSocket over ASGI."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._ending: asyncio.Task[None] | None = None

    async def receive(self) -> str | None:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise ClientDisconnected("the client has left")
        text: str | None = message.get("text")
        return text

    async def send(self, text: str) -> None:
        await self._send_message({"type": "websocket.send", "text": text})

    async def close(self, code: int, reason: str) -> None:
        await self._send_message({"type": "websocket.close", "code": code, "reason": reason[:REASON_BYTES_MAX]})

    def end(self) -> None:
        """Close the connection, because the token of the client gives no access any more; `receive` then says so."""
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        with contextlib.suppress(ClientDisconnected):
            await self.close(POLICY_VIOLATION, ENDED)

    async def _send_message(self, message: Mapping[str, Any]) -> None:
        try:
            await self._send(dict(message))
        except (OSError, RuntimeError) as error:
            # uvicorn raises OSError when the client has disconnected, and RuntimeError when uvicorn itself has closed
            # meanwhile.
            raise ClientDisconnected("the client has left") from error


async def _send_refusal(response: Response, send: Send) -> int:
    """Refuse a handshake, in the one error format."""
    start = {"type": "websocket.http.response.start", "status": response.status_code, "headers": response.raw_headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": bytes(response.body)})
    return response.status_code
