"""The application over a World, as a client sees it: through ASGI, in this process, without a socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.load import load_configuration
from loomlog.connectors.configuration.providers import build_providers
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.services.api.app import build_app
from loomlog.services.api.metrics import Metrics
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES
from loomlog.services.api.service import Service
from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.access.decide import Caller
from tests.services.api.answer_schemas import check_answer, check_response
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ADMIN_CALLER, World, tokens, world

MAX_BODY = 200_000
FILES = """
providers:
  mock: { driver: mock, options: { enabled: true } }
provider_priority: [mock]
models:
  quick: { provider: mock, model: mock-generic }
tiers:
  middle: [{ provider: mock, model: mock-generic }]
user_tiers:
  default: { provider_priority: [mock], tiers: { middle: [{ provider: mock, model: mock-generic }] } }
  resilient: { provider_priority: [openai, mock] }
agents:
  soaker: { provider: mock, model: mock-generic }
"""


def service_of(made: World | None, folder: Path) -> Service:
    """A service over the world; with None one that waits for everything."""
    (folder / "loomlog.yaml").write_text(FILES)
    environ = {"LOOMLOG_CONFIG_FILES": str(folder / "loomlog.yaml")}
    settings, _ = read_settings(environ, working_directory=folder)
    configuration = load_configuration(settings, environ, working_directory=folder).configuration
    return Service(
        authenticator=Authenticator(tokens()) if made is None else made.layer.authenticator,
        configuration=configuration,
        providers=build_providers(configuration, settings, environ),
        metrics=Metrics(version="1.2.3", commit="abc"),
        replica_id="tests",
        max_request_bytes=MAX_BODY,
        metrics_enabled=True,
        current_application=None if made is None else made.layer,
        version="1.2.3",
    )


@dataclass(repr=False, slots=True)
class Served:
    """A world, its service, and clients for its callers."""

    world: World
    service: Service
    app: FastAPI
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    def client(self, caller: Caller | None = ADMIN_CALLER) -> httpx.AsyncClient:
        """A client with that caller's token; None sends none."""
        name = caller.name if caller is not None else ""
        if name not in self.clients:
            headers = {"Authorization": f"Bearer {name}-token"} if name else {}
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            self.clients[name] = httpx.AsyncClient(
                transport=transport,
                base_url="http://test",
                headers=headers,
                event_hooks={"response": [check_response]},
            )
        return self.clients[name]

    async def run(
        self, agent: str = "soaker", prompt: str = "go", *, caller: Caller = ADMIN_CALLER, **body: Any
    ) -> Any:
        """A finished run: its frames."""
        answer = await self.client(caller).post("/v1/runs", json={"agent": agent, "prompt": prompt, **body})
        assert answer.status_code == 200, answer.text
        return frames_of(answer.text)


@contextlib.asynccontextmanager
async def served(folder: Path, *, routes: Sequence[Route] = ROUTES, **more: Any) -> AsyncIterator[Served]:
    """The application over a World that works."""
    more.setdefault("state_files", StateFiles(folder / "states"))
    async with world(**more) as made:
        service = service_of(made, folder)
        result = Served(made, service, build_app(service, routes))
        try:
            yield result
        finally:
            for client in result.clients.values():
                await client.aclose()


@dataclass(frozen=True, slots=True)
class SentEvent:
    """A server-sent event as it came over the wire."""

    event: str
    data: Any
    id: str | None = None


def frames_of(text: str) -> list[SentEvent]:
    """The events in a whole stream; comments are left out."""
    result = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            fields: Mapping[str, str] = dict(line.split(": ", 1) for line in lines)
            result.append(SentEvent(fields["event"], json.loads(fields["data"]), fields.get("id")))
    return result


class Wire:
    """One request over bare ASGI, for what a client library hides: streams in the middle, clients that leave."""

    def __init__(
        self, app: FastAPI, method: str, path: str, *, caller: Caller | None = ADMIN_CALLER, body: bytes = b""
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.writes: list[bytes] = []
        self.ended = False
        self._grown = asyncio.Event()
        self._left = asyncio.Event()
        self._pieces: list[tuple[bytes, bool]] = [(body, False)]
        path, _, query = path.partition("?")
        headers = [(b"content-type", b"application/json")]
        if caller is not None:
            headers.append((b"authorization", f"Bearer {caller.name}-token".encode()))
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._app = app
        self.task: asyncio.Task[None] | None = None

    def header(self, name: str, value: str) -> "Wire":
        self.scope["headers"].append((name.encode(), value.encode()))
        return self

    def chunks(self, pieces: list[bytes], *, endless: bool = False) -> "Wire":
        """The body in pieces; an endless one never says that it is over."""
        self._pieces = [(piece, True) for piece in pieces]
        if not endless:
            self._pieces.append((b"", False))
        return self

    def begin(self) -> "Wire":
        self.task = asyncio.create_task(self._app(self.scope, self._receive, self._send))  # type: ignore[arg-type]
        return self

    async def until(self, text: str) -> str:
        """The body so far, once it holds the text."""
        async with asyncio.timeout(WAIT_S):
            while text.encode() not in self.body:
                assert not self.ended, self.body.decode()
                self._grown.clear()
                await self._grown.wait()
        return self.body.decode()

    async def done(self) -> str:
        """The whole body."""
        assert self.task is not None
        async with asyncio.timeout(WAIT_S):
            await self.task
        if self.status:
            media_type = self.headers.get("content-type", "")
            check_answer(self.scope["method"], self.scope["path"], self.status, media_type, self.body)
        return self.body.decode()

    def leave(self) -> None:
        """The client closes its connection."""
        self._left.set()

    async def _receive(self) -> dict[str, Any]:
        if self._pieces:
            piece, more = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": more}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.writes.append(message.get("body", b""))
            self.body += self.writes[-1]
            self.ended = not message.get("more_body", False)
        self._grown.set()
