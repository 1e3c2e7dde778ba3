"""Another installation with memory, over real HTTP, and an agent whose memory is there."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.secret_registry import SecretRegistry, build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.memory_peer.client import PeerClient
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.table import FILE, Resolved, file_definition
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.author import Author, Grants
from loomlog.services.families.memory.backends import KIND, Backends
from loomlog.services.families.memory.entry_operations import EntryLimits, EntryOperations
from loomlog.services.families.memory.store import MemoryStore
from tests.connectors.tools.web_server import Names
from tests.services.api.serving import served
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.memory.calls import carry_out, memory_handlers

HOST = "peer.example"
KEY_VARIABLE = "PEER_KEY"
NAME = "team"


@asynccontextmanager
async def memory_peer(folder: Path, entities: MemoryEntities) -> AsyncIterator[int]:
    """The api over entities in memory, on a port of loopback."""
    more: dict[str, Any] = {"entity_commands": entities, "entity_reads": entities, "clock_ms": lambda: NOW_MS}
    async with served(folder, **more) as here:
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(here.app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server._serve([listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving
            listening.close()


class Definitions:
    """Backends by name; `sources` says where one is from, by default the files."""

    def __init__(self, **contents: Mapping[str, Any]) -> None:
        self.contents = dict(contents)
        self.sources: dict[str, str] = {}

    def resolve(self, kind: str, tenant: str, name: str) -> Resolved | None:
        if kind != KIND or name not in self.contents:
            return None
        content = dict(self.contents[name])
        digest = file_definition(kind, name, content).digest
        source = self.sources.get(name, FILE)
        return Resolved(kind=kind, name=name, source=source, def_id="d", digest=digest, content=content)

    async def load(self, resolved: Resolved) -> Mapping[str, Any]:
        assert resolved.content is not None
        KINDS[KIND].block_of(resolved.content)
        return resolved.content


def _secrets(content: Mapping[str, Any], environment: Mapping[str, str]) -> SecretRegistry:
    """The registry of an installation whose files have this backend."""
    try:
        backends = {NAME: KINDS[KIND].block_of(content)}
    except DefinitionProblem:
        backends = {}
    return build_secret_registry(Configuration(memory_backends=backends), Settings(), environment)


class RemoteAgent:
    """Calls of an agent with a backend; a further one over the same entities is the process after a crash."""

    def __init__(
        self,
        port: int,
        *,
        local: MemoryEntities | None = None,
        environment: Mapping[str, str] | None = None,
        tenant: str = "default",
        scopes: tuple[str, ...] = ("agent", "user", "tenant"),
        timeout_s: float = 30.0,
        **content: Any,
    ) -> None:
        self.local = local or MemoryEntities(FAMILY)
        self.now_s = 1_000.0
        config = {"base_url": f"http://{HOST}:{port}", "api_key_env": KEY_VARIABLE} | content.pop("config", {})
        self.definitions = Definitions(**{NAME: {"kind": "remote", "config": config, **content}})
        names = Names()

        def build_peer(base_url: str, api_version: str) -> PeerClient:
            return PeerClient(
                base_url, api_version=api_version, resolve=names.resolve, network=names, timeout_s=timeout_s
            )

        self.store = MemoryStore(self.local, self.local, clock_ms=lambda: NOW_MS)
        entries = EntryOperations(self.store, EntryLimits())
        self.backends = Backends(
            entries,
            self.definitions,
            build_peer,
            secrets=_secrets(
                self.definitions.contents[NAME],
                {KEY_VARIABLE: "shared-token"} if environment is None else environment,
            ),
            clock_s=lambda: self.now_s,
        )
        self.handlers = memory_handlers(entries, self.backends)
        self.tenant = tenant
        self.grants = Grants(memory_scopes=scopes, sql_scopes=("run",), memory_backend=NAME)
        self.calls = 0

    def author(self, call: int, attempt: int, *, agent: str = "helper", user_id: str = "ada") -> Author:
        return Author(
            tenant=self.tenant,
            subject="service",
            command_id=f"r_1:1.{call}",
            issued_at_ms=NOW_MS if attempt == 1 else 0,
            user_id=user_id,
            agent=agent,
            run_id="r_1",
            root_run_id="r_1",
            session_id="s_1",
            turn=1,
            call=call,
            grants=self.grants,
        )

    async def call(
        self,
        op: str,
        *,
        scope: str = "user",
        call: int = 0,
        attempt: int = 1,
        agent: str = "helper",
        user_id: str = "ada",
        **fields: Any,
    ) -> Any:
        self.calls += 1
        author = self.author(call or self.calls, attempt, agent=agent, user_id=user_id)
        return (await carry_out(self.handlers, op, {"scope": scope, **fields}, author)).value

    async def refused(self, op: str, **fields: Any) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.call(op, **fields)
        return caught.value
