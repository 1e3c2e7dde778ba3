"""The document against the application: whatever a client makes of it, answers are what it says, and nothing breaks.

The application runs on a loop of its own in a thread, behind a real socket, because the generator is synchronous.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from loomlog.connectors.models.mock.model import MockModel
from loomlog.schemas.codec import local_codec
from loomlog.services.api.openapi import build_document
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.routes import ROUTES
from loomlog.services.core.entity_operations import entity_operations
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.commands import StartCommand as StartOrder
from loomlog.services.families.registry import all_families
from loomlog.services.runtime.models.provider_probe import ProviderProber
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.api.serving import Served, served
from tests.services.application.owner import WAIT_S
from tests.services.application.world import World
from tests.services.entities import COUNTER, MemoryEntities
from tests.services.log_entities import LogEntities

EXAMPLES = 5
"""For each route; the whole takes a few seconds."""
SHAPES = (content_type_conformance, response_schema_conformance)
load_all_checks()
ENDLESS = ["/v1/users/{user_id}/agents/stream", "/v1/runs/stream", "/v1/_memory/changes", "/v1/_document/changes"]
"""Open until their client leaves; test_interrupt_endpoints.py and test_memory_feed_endpoints.py listen to them."""
STREAMED = ["/v1/_audit/verify"]
"""Answered by a stream that ends; its frames are objects, which the document's text is not. test_audit_endpoints.py
reads them.
"""
ROWS = (*ROUTES, *operation_routes(entity_operations(COUNTER)))


class CountersBeside(LogEntities):
    """Counters in memory, beside the families of an installation."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = MemoryEntities()

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        if any(row.record is type(command) for row in COUNTER.commands):
            return await self._counters.ask(command, wait_s=wait_s)
        return await super().ask(command, wait_s=wait_s)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        if family == COUNTER.name:
            return await self._counters.show(family, tenant, name, positions=positions)
        return await super().show(family, tenant, name, positions=positions)

    async def list(self, family: str, tenant: str, **page: Any) -> Sequence[EntityRow]:
        if family == COUNTER.name:
            return await self._counters.list(family, tenant, **page)
        return await super().list(family, tenant, **page)


SCHEMA = schemathesis.openapi.from_dict(build_document("1.2.3", ROWS)).exclude(path=[*ENDLESS, *STREAMED])
SETTINGS = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
CASES = HypothesisTestConfig(project=SCHEMA.config, modes=list(HypothesisTestMode), explicit_settings=SETTINGS)
"""Examples of the document, values at every bound of its schemas, and random ones."""
OPERATIONS = {found.label: found for found in (result.ok() for result in SCHEMA.get_all_operations())}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ready = threading.Event()
    stop: list[asyncio.Event] = []
    loops: list[asyncio.AbstractEventLoop] = []
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # by its protocol asyncio knows that it may send at once
    listening.bind(("127.0.0.1", 0))
    listening.listen()

    async def serve(folder: Path) -> None:
        entities = CountersBeside()
        families = (*all_families(), COUNTER)
        async with served(
            folder, routes=ROWS, families=families, entity_commands=entities, entity_reads=entities
        ) as here:
            entities.attach(here.world.log, here.world.layer.resources.entities)
            refuse_all(here.world)
            probing = asyncio.create_task(prober_of(here).run(lambda: True))
            config = uvicorn.Config(here.app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
            server = uvicorn.Server(config)
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            stop.append(asyncio.Event())
            loops.append(asyncio.get_running_loop())
            serving = asyncio.create_task(server._serve([listening]))
            ready.set()
            await stop[0].wait()
            server.should_exit = True
            await serving
            probing.cancel()
            await asyncio.wait([probing])

    thread = threading.Thread(target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("api"))))
    thread.start()
    assert ready.wait(WAIT_S)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    loops[0].call_soon_threadsafe(stop[0].set)
    thread.join(WAIT_S)
    assert not thread.is_alive()


def prober_of(here: Served) -> ProviderProber:
    """A runtime's, so that probes are answered; every provider is a synthetic one."""
    return ProviderProber(
        here.world.layer.provider_table,
        {name: MockModel(provider=name) for name, provider in here.service.providers.items() if provider.is_usable},
        codec=local_codec(),
        appender=here.world.log,
        clock_ms=lambda: 1,
        name="fuzz",
        interval_s=3_600,
    )


def refuse_all(made: World) -> None:
    """Made-up agents do not exist, so no stream stays open."""
    real = made._start

    def start(command: object) -> StartOrder:
        order = real(command)  # type: ignore[arg-type]
        return StartOrder(
            at_ms=order.at_ms,
            command=order.command,
            session_id=order.session_id,
            agent_id=order.agent_id,
            definition=None,
            definition_refusal=CommandRefusal(code="unknown_agent", message="there is no such agent"),
        )

    made._start = start  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def connection() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield session


# The cases are made by the test, as long as it takes, and not by SCHEMA.parametrize() whenever tests are collected.
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_what_the_document_says(label: str, address: str, connection: requests.Session) -> None:
    def check(case: Case[Any]) -> None:
        answer = case.call(address, connection, headers={"Authorization": "Bearer shared-token"}, timeout=4 * WAIT_S)
        case.validate_response(answer, checks=[no_bug, status_code_conformance, *SHAPES])
        if breaks_the_body(case):
            assert 400 <= answer.status_code < 500, answer.status_code
        if answer.status_code >= 400 and case.operation.path != "/readyz":
            actual = answer.json()
            assert actual["code"], actual
            assert actual["error"], actual

    create_test(operation=OPERATIONS[label], test_func=check, config=CASES)()


def breaks_the_body(case: Case[Any]) -> bool:
    """The body is not what the document says. (Query parameters nobody knows are let pass, so they do not count.)"""
    body = case.meta.components.get(ParameterLocation.BODY) if case.meta else None
    return body is not None and body.mode is GenerationMode.NEGATIVE


def no_bug(ctx: object, response: Response, case: Case[Any]) -> bool | None:
    """503 is an answer: something is not there yet; and so is the 500 of a file that is not a state file. Any other 5xx
    is a bug.
    """
    if response.status_code == 503 or (response.status_code == 500 and response.json()["code"] == "restore_failed"):
        return None
    return not_a_server_error(ctx, response, case)  # type: ignore[arg-type]
