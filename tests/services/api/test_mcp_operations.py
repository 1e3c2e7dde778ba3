"""Every tool of MCP and each of its operations: answered or refused with a code, by the same access as elsewhere; and
whatever is sent, an answer in the form of the protocol.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomlog.services.api.mcp.event_operations import OPERATIONS as EVENT_OPERATIONS
from loomlog.services.api.mcp.messages import Message, RpcError, parse_message
from loomlog.services.api.mcp.operations import OPERATIONS as MCP_OPERATIONS
from loomlog.services.api.mcp.routes import PATH
from loomlog.services.api.mcp.tasks import OPERATIONS as TASK_OPERATIONS
from loomlog.services.api.mcp.tools import mcp_rows
from loomlog.services.application import limits
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.decide import may_call
from loomlog.services.core.error_codes import ERRORS
from loomlog.services.core.operation_input import field_schemas
from loomlog.services.core.operations import AnyOperation, McpTool
from tests.services.api.serving import Served, served
from tests.services.api.test_mcp_tasks import REVISION, ask
from tests.services.application.world import ACME, ADMIN_CALLER, IVY, READER
from tests.services.entities import MemoryEntities

OF_MCP = (*MCP_OPERATIONS, *TASK_OPERATIONS, *EVENT_OPERATIONS)
ROWS = [(operation, row) for operation in (*product_operations(), *MCP_OPERATIONS) for row in mcp_rows(operation)]
LONG = frozenset({"stream_user_run_states", "subscribe_channel"})
"""Tools that would wait without a limit of their own."""
every = pytest.mark.parametrize(("operation", "row"), ROWS, ids=[f"{row.tool}.{row.op}" for _, row in ROWS])


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    entities = MemoryEntities()
    folder: Path = tmp_path_factory.mktemp("mcp")
    async with served(folder, entity_commands=entities, entity_reads=entities) as made:
        yield made


async def call(here: Served, row: McpTool, caller: Any, **arguments: Any) -> Any:
    named = {"op": row.op} if row.op else {}
    params = {"name": row.tool, "arguments": {**named, **arguments}}
    return await ask(here, "tools/call", params, caller=caller, capabilities={})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime answers a probe here."""
    monkeypatch.setattr(limits, "PROBE_WAIT_S", 0.02)


@every
async def test_a_tool_without_fields_is_answered_or_refused_with_a_code(
    here: Served, operation: AnyOperation, row: McpTool
) -> None:
    arguments = {"timeout_ms": 0, "user_id": "ada"} if row.tool in LONG else {}
    answer = await call(here, row, ADMIN_CALLER, **arguments)
    assert "error" not in answer, answer
    result = answer["result"]
    if result["isError"]:
        assert json.loads(result["content"][0]["text"])["code"] in ERRORS


@every
async def test_a_caller_who_may_not_is_refused(here: Served, operation: AnyOperation, row: McpTool) -> None:
    for caller in (ACME, READER, IVY):
        if not may_call(caller, operation.access):
            result = (await call(here, row, caller))["result"]
            assert json.loads(result["content"][0]["text"])["code"] == "insufficient_scope"


async def test_isolated_callers_run_agents_and_see_their_own_runs_alone(here: Served) -> None:
    listed = (await ask(here, "tools/list", {}, caller=IVY, capabilities={}))["result"]["tools"]
    names = {tool["name"] for tool in listed}
    assert {"spawn_run", "list_runs"} <= names
    assert names.isdisjoint({"memory", "agentdef", "pause_runtime"})
    other, own = [(await here.run(caller=caller))[1].data["agent_id"] for caller in (ACME, IVY)]
    for agent_id, is_hidden in ((own, False), (other, True)):
        params = {"name": "get_run", "arguments": {"agent_id": agent_id}}
        assert (await ask(here, "tools/call", params, caller=IVY, capabilities={}))["result"]["isError"] is is_hidden


@every
async def test_an_unknown_field_is_refused_by_name(here: Served, operation: AnyOperation, row: McpTool) -> None:
    result = (await call(here, row, ADMIN_CALLER, no_such_field=1))["result"]
    assert result["isError"]
    assert "no_such_field" in result["content"][0]["text"]


@pytest.mark.parametrize("operation", OF_MCP, ids=lambda operation: operation.name)
def test_each_field_of_its_own_operations_is_described(operation: AnyOperation) -> None:
    assert operation.summary.endswith(".")
    assert not [name for name, schema in field_schemas(operation.input).items() if not schema.get("description")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "tasks/get", "events/poll", "x", 1, None])
MESSAGES = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0") | JSON, "id": JSON, "method": METHODS, "params": JSON, "result": JSON}
)


@given(raw=st.binary(max_size=60) | MESSAGES.map(lambda one: json.dumps(one).encode()))
def test_a_message_is_read_or_refused_with_a_code(raw: bytes) -> None:
    try:
        read: Message | RpcError = parse_message(raw)
    except RpcError as error:
        read = error
    assert isinstance(read, Message) or -32700 <= read.code <= -32600


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=MESSAGES, is_stateless=st.booleans())
async def test_whatever_is_sent_has_an_answer_of_the_protocol(
    here: Served, message: dict[str, Any], is_stateless: bool
) -> None:
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call"} if is_stateless else {}
    answer = await here.client(ADMIN_CALLER).post(PATH, json=message, headers=headers)
    assert answer.status_code in (200, 202, 400, 404)
    if answer.status_code != 202:
        assert {"result", "error"} & answer.json().keys()
