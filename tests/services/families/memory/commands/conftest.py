"""`loomlog memory` against an API that answers from a script, and against the real one over entities in memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from loomlog.schemas.generated.memory_commands import SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.main import app
from loomlog.services.families.memory import FAMILY
from tests.services.api.serving import served
from tests.services.application.world import ACME
from tests.services.cli.conftest import fake
from tests.services.cli.fake_api import let_commands_use
from tests.services.entities import MemoryEntities

__all__ = ["fake"]


def memory(*arguments: str, stdin: bytes | str = "") -> Any:
    return CliRunner().invoke(app, ["memory", *arguments], input=stdin)


def ok(result: Any) -> list[str]:
    """Lines of a command that succeeded, without spaces at their ends and doubled ones."""
    assert result.exit_code == 0, result.output
    return [" ".join(text.split()) for text in result.stdout.splitlines()]


class ServedMemory:
    """The commands over the API of this process; they run in a thread, because each has an event loop of its own."""

    def __init__(self, entities: MemoryEntities) -> None:
        self.entities = entities

    async def run(self, *arguments: str, stdin: bytes | str = "") -> Any:
        return await asyncio.to_thread(lambda: memory(*arguments, stdin=stdin))

    async def ok(self, *arguments: str, stdin: bytes | str = "") -> list[str]:
        return ok(await self.run(*arguments, stdin=stdin))

    async def set_in_run(self, key: str, value: str) -> None:
        """Set a key of ada as an agent does."""
        source = MemorySource(origin="agent_explicit", run_id="r_1", turn=2, call=1, agent="helper", user_id="ada")
        envelope = CommandEnvelope(command_id=f"run-{key}", tenant=ACME.tenant, subject="ada", issued_at_ms=1)
        command = SetEntry(envelope=envelope, scope="user", scope_id="ada", key=key, value=value, source=source)
        await self.entities.ask(command, wait_s=1.0)


class _LoopTransport(httpx.AsyncBaseTransport):
    """Sends requests to an application that lives in another event loop."""

    def __init__(self, application: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._asgi, self._loop = httpx.ASGITransport(app=application), loop

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._answer(request), self._loop))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._asgi.handle_async_request(request)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedMemory]:
    entities = MemoryEntities(FAMILY)
    async with served(tmp_path, entity_commands=entities, entity_reads=entities) as made:
        transport = _LoopTransport(made.app, asyncio.get_running_loop())
        let_commands_use(monkeypatch, lambda: ApiClient("http://test", f"{ACME.name}-token", transport=transport))
        monkeypatch.setenv("COLUMNS", "200")
        yield ServedMemory(entities)
