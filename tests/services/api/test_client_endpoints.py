"""Who may open a WebSocket for tools, and what a refused handshake says; over bare ASGI."""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from loomlog.connectors.configuration.principals import TokenTable
from loomlog.services.api.app import build_app
from loomlog.services.api.client_endpoints import SUBPROTOCOL, AsgiClientSocket, identify
from loomlog.services.api.main import ApiServer, _server_config
from loomlog.services.api.open_access import ENDED
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.clients.connection import ClientDisconnected
from loomlog.services.core.refusals import Refused
from tests.connectors.identity_providers.provider import Provider, providers_of
from tests.services.api.serving import Served, served, service_of
from tests.services.application.world import ACME, READER, tokens, until

WAIT_S = 30.0
HELLO = '{"type":"hello","tools":[{"name":"click"}]}'


class Client:
    """One WebSocket over bare ASGI."""

    def __init__(self, app: Any, *, path: str = "/v1/client-tools", offers: Sequence[str] = (), **headers: str) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self._coming: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._coming.put_nowait({"type": "websocket.connect"})
        self.scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": list(offers),
            "extensions": {"websocket.http.response": {}},
        }
        self._app = app

    async def _send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.accept":
            self._coming.put_nowait({"type": "websocket.receive", "text": HELLO})
        if "hello_ok" in message.get("text", ""):
            self._coming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def talk(self) -> "Client":
        """Says hello once it is let in, and leaves."""
        async with asyncio.timeout(WAIT_S):
            await self._app(self.scope, self._coming.get, self._send)
        return self

    @property
    def kinds(self) -> list[str]:
        return [message["type"] for message in self.sent]

    @property
    def refusal(self) -> tuple[int, str]:
        assert self.kinds == ["websocket.http.response.start", "websocket.http.response.body"]
        return self.sent[0]["status"], json.loads(self.sent[1]["body"])["code"]


@contextlib.asynccontextmanager
async def requests_read(here: Served) -> AsyncIterator[None]:
    """With requests for clients being read."""
    log = here.world.log

    async def tail() -> Any:
        return log.tail("loom.tool.requests", {0: 0})

    running = asyncio.create_task(here.world.layer.clients.run(tail))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def talked(here: Served, **given: Any) -> Client:
    async with requests_read(here):
        return await Client(here.app, **given).talk()


@pytest.mark.parametrize(
    ("offers", "headers"),
    [
        ([SUBPROTOCOL], {"authorization": "Bearer acme-token"}),
        ([SUBPROTOCOL, "bearer.acme-token"], {}),
        (["bearer.acme-token", SUBPROTOCOL], {}),
    ],
)
async def test_a_token_comes_in_the_header_or_as_a_subprotocol(
    tmp_path: Path, offers: list[str], headers: dict[str, str]
) -> None:
    async with served(tmp_path) as here:
        client = await talked(here, offers=offers, **headers)
    assert client.kinds == ["websocket.accept", "websocket.send"]
    assert client.sent[0]["subprotocol"] == SUBPROTOCOL
    assert json.loads(client.sent[1]["text"])["accepted"] == ["click"]


@pytest.mark.parametrize(
    ("offers", "headers", "refusal"),
    [
        ([SUBPROTOCOL], {}, (401, "unauthorized")),
        ([SUBPROTOCOL, "bearer.wrong"], {}, (401, "unauthorized")),
        ([SUBPROTOCOL, "bearer.acme-token"], {"authorization": "Basic x"}, (401, "unauthorized")),
        ([SUBPROTOCOL, f"bearer.{READER.name}-token"], {}, (403, "insufficient_scope")),
        (["bearer.acme-token"], {}, (400, "bad_request")),
    ],
)
async def test_a_handshake_that_is_refused_says_why(
    tmp_path: Path, offers: list[str], headers: dict[str, str], refusal: tuple[int, str]
) -> None:
    async with served(tmp_path) as here:
        assert (await Client(here.app, offers=offers, **headers).talk()).refusal == refusal


async def test_a_refused_handshake_has_its_status_on_the_wire_and_is_no_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer(_server_config(service_of(None, tmp_path), 1_024), on_stopping=lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        serving = asyncio.create_task(server.serve([listening]))
        with pytest.raises(InvalidStatus) as refused:
            async with asyncio.timeout(WAIT_S), connect(f"ws://{host}:{port}/v1/client-tools"):
                pass
        server.should_exit = True
        await serving
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["code"] == "unauthorized"
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_process_that_is_not_ready_says_so(tmp_path: Path) -> None:
    app = build_app(service_of(None, tmp_path))
    client = await Client(app, offers=[SUBPROTOCOL, "bearer.acme-token"]).talk()
    assert client.refusal == (503, "starting")


async def test_no_other_path_is_a_websocket(tmp_path: Path) -> None:
    app = build_app(service_of(None, tmp_path))
    client = await Client(app, path="/v1/runs", offers=[SUBPROTOCOL, "bearer.acme-token"]).talk()
    assert client.kinds == ["websocket.close"]


async def test_a_plain_request_is_told_that_this_is_a_websocket(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        answer = await here.client(ACME).get("/v1/client-tools")
    assert (answer.status_code, answer.json()["code"]) == (426, "upgrade_required")


@pytest.mark.parametrize("origin", ["", "http://localhost:3000", "https://127.0.0.1", "chrome-extension://abc"])
async def test_without_tokens_programs_and_pages_of_this_machine_may_connect(origin: str) -> None:
    headers = {"origin": origin} if origin else {}
    assert (await identify(Authenticator(TokenTable(rows=(), open_mode=True)), headers, [])).open_mode


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "http://10.0.0.1"])
async def test_without_tokens_pages_of_elsewhere_may_not(origin: str) -> None:
    with pytest.raises(Refused, match="pages of this machine"):
        await identify(Authenticator(TokenTable(rows=(), open_mode=True)), {"origin": origin}, [])


class Staying(Client):
    """A client that says nothing and stays until it is told to leave."""

    async def _send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.close":
            self._coming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})


async def test_a_connection_ends_when_the_token_of_a_provider_expires(tmp_path: Path) -> None:
    provider, later_s = Provider(), [0]
    gate = Authenticator(tokens(), providers=providers_of(provider), time_s=lambda: time.time() + later_s[0])
    async with served(tmp_path, authenticator=gate) as here, requests_read(here):
        client = Staying(here.app, offers=[SUBPROTOCOL, f"bearer.{provider.token()}"])
        talking = asyncio.create_task(client.talk())
        await until(lambda: client.kinds == ["websocket.accept"])
        here.service.open_access.end_revoked()
        later_s[0] = 700
        here.service.open_access.end_revoked()
        await talking
    assert client.sent[1:] == [{"type": "websocket.close", "code": 1008, "reason": ENDED}]


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("after close")])
async def test_a_socket_that_cannot_be_written_is_a_client_that_left(error: Exception) -> None:
    async def send(message: Any) -> None:
        raise error

    socket = AsgiClientSocket(asyncio.Queue[Any]().get, send)
    with pytest.raises(ClientDisconnected):
        await socket.send("x")
    with pytest.raises(ClientDisconnected):
        await socket.close(1000, "bye")
