"""The family of docs/examples/documents, which no line of the product names, through HTTP, tool and command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from loomlog.connectors.protocols import ToolContext
from loomlog.services.api.openapi import build_document
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.routes import ROUTES
from loomlog.services.cli.errors import NOT_FOUND, USAGE_ERROR
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.main import app
from loomlog.services.core.refusals import Unavailable
from loomlog.services.families.registry import all_families, operations_of, tools_of
from loomlog.services.runtime.tools.operation_tools import OperationTool, build_operation_tools
from tests.services.api.serving import Served, served
from tests.services.application.world import NOW_MS, READER
from tests.services.cli.fake_api import let_commands_use
from tests.services.entities import MemoryEntities

FOLDER = Path(__file__).parents[3] / "docs" / "examples" / "documents"
CONTEXT = ToolContext(
    run_id="r_1",
    session_id="s_1",
    agent_id="a_1",
    agent="writer",
    tenant="default",
    subject="token",
    user_id="ada",
    user_tier="",
    provider="mock",
    model="m",
    tools=("Document",),
    idempotency_key="r_1:1.0",
)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("documents").FAMILY


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, family: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    entities, families = MemoryEntities(family), (*all_families(), family)
    routes = (*ROUTES, *operation_routes(operations_of([family])))
    async with served(
        tmp_path, routes=routes, families=families, entity_commands=entities, entity_reads=entities
    ) as made:
        transport = httpx.ASGITransport(app=made.app, raise_app_exceptions=False)
        let_commands_use(monkeypatch, lambda: ApiClient("http://test", "shared-token", transport=transport))
        monkeypatch.setattr("loomlog.services.families.registry.all_families", lambda: families)
        yield made


async def command(*words: str) -> Any:
    """Give a command of the command line, which has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(words))


def tool_of(here: Served, family: Any) -> OperationTool:
    tools = build_operation_tools(
        tools_of([family]),
        operations_of([family]),
        here.world.layer.dispatch.handlers,
        is_isolated=lambda tenant, subject: False,
        clock_ms=lambda: NOW_MS,
    )
    return tools["Document"]


async def test_what_one_way_in_puts_the_others_get(here: Served, family: Any) -> None:
    client, tool = here.client(), tool_of(here, family)
    put = await client.put("/v1/_documents/plan%2Fa", json={"text": "one"})
    assert (put.status_code, put.json()) == (200, {"name": "plan/a", "text": "one", "revision": 1})
    assert put.headers["x-loomlog-position"]
    assert (await client.get("/v1/_documents/plan/a")).json() == put.json()
    by_tool = await tool.call({"op": "put", "name": "plan/a", "text": "two"}, CONTEXT)
    assert (json.loads(by_tool.text)["revision"], len(by_tool.positions)) == (2, 1)
    by_command = await command("document", "put", "plan/a", "--text", "three", "--json")
    assert json.loads(by_command.output)["revision"] == 3
    got = [
        (await client.get("/v1/_documents/plan/a")).json(),
        json.loads((await tool.call({"op": "get", "name": "plan/a"}, CONTEXT)).text),
        json.loads((await command("document", "get", "plan/a", "--json")).output),
        json.loads((await command("call", "document.get", "--json-body", '{"name": "plan/a"}')).output),
    ]
    assert got == [{"name": "plan/a", "text": "three", "revision": 3}] * 4
    assert (await client.get("/v1/_documents?prefix=plan/&limit=1")).json() == {"names": ["plan/a"]}
    assert (await command("document", "list", "--prefix", "x")).output.split() == ["names", "[]"]


async def test_every_way_in_refuses_alike(here: Served, family: Any) -> None:
    long, sentence = "x" * 65_537, "text: expected text of 0 to 65536 characters, not a text of 65537 characters"
    by_http = await here.client().put("/v1/_documents/a", json={"text": long})
    assert (by_http.status_code, by_http.json()["error"]) == (400, sentence)
    assert sentence in (await tool_of(here, family).call({"op": "put", "name": "a", "text": long}, CONTEXT)).text
    # The longest argument of a process is as long as the largest text here.
    assert (await command("document", "put", "a", "--tex", "b")).exit_code == USAGE_ERROR
    assert (await here.client(READER).put("/v1/_documents/a", json={"text": "b"})).status_code == 403
    assert (await here.client().get("/v1/_documents/a")).status_code == 404
    assert (await command("document", "get", "a")).exit_code == NOT_FOUND
    assert "there is no document 'a'" in (await tool_of(here, family).call({"op": "get", "name": "a"}, CONTEXT)).text


async def test_what_does_not_answer_has_a_code_of_the_table(
    here: Served, family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(call: Any) -> Any:
        raise Unavailable("nothing answers")

    get = family.operations[1]
    monkeypatch.setitem(here.world.layer.dispatch.handlers, get, fail)
    answer = await here.client().get("/v1/_documents/a")
    assert (answer.status_code, answer.json()["code"]) == (503, "outside_unavailable")


async def test_it_is_in_the_tables_and_the_document(here: Served, family: Any) -> None:
    listed = {row["name"]: row for row in json.loads((await command("operations", "--json")).output)}
    assert listed["document.put"] == {
        "name": "document.put",
        "summary": "Keep a document, in place of the one of its name.",
        "access": "scope runs:create",
        "effect": "write",
        "http": ["PUT /v1/_documents/{name:path}"],
        "tool": "Document put",
        "command": "document put",
    }
    shown = (await command("operations", "document.put")).output
    for text in ("text of 0 to 65536 characters", "What it says.", "How often it was kept.", "outside_unavailable"):
        assert text in shown
    document = build_document("1", operation_routes(operations_of([family])))
    put = document["paths"]["/v1/_documents/{name}"]["put"]
    assert put["tags"] == ["Documents"]
    assert document["components"]["schemas"]["DocumentPut"]["required"] == ["text"]
    assert set(document["components"]["schemas"]["DocumentRow"]["properties"]) == {"name", "text", "revision"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("operations", "document.putt"), "did you mean document.put"),
        (("call", "document.put", "--json-body", '{"name": "a", "txt": "b"}'), "'txt' is unknown; did you mean text?"),
        (("call", "document.get", "--json-body", '{"prefix": "b"}'), "'prefix' is unknown; expected are name"),
        (("call", "document.get"), "the path needs name"),
        (("call", "channel.grants"), "only agents call it"),
    ],
)
async def test_a_call_that_cannot_be_is_not_sent(here: Served, words: tuple[str, ...], text: str) -> None:
    result = await command(*words)
    assert (result.exit_code, text in result.output) == (USAGE_ERROR, True), result.output
