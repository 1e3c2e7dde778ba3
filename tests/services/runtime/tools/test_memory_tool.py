"""The tool of memory: what an agent's call becomes, and what its result says about the effect."""

import json
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.records import replace
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.entry_operations import EntryLimits, EntryOperations
from loomlog.services.families.memory.store import MemoryStore
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.memory.calls import memory_tool

CONTEXT = ToolContext(
    run_id="r_1",
    session_id="s_1",
    agent_id="a_1",
    agent="helper",
    tenant="acme",
    subject="token",
    user_id="ada",
    user_tier="",
    provider="mock",
    model="m",
    tools=("Memory",),
    idempotency_key="r_1:2.3",
    grants={"memory_scopes": ("user", "tenant")},
)


class Here:
    """The tool over entities in memory."""

    def __init__(self, **more: Any) -> None:
        self.entities = MemoryEntities(FAMILY)
        store = MemoryStore(self.entities, self.entities, clock_ms=lambda: NOW_MS)
        self.tool = memory_tool(EntryOperations(store, EntryLimits()), clock_ms=lambda: NOW_MS, **more)

    async def call(self, op: str, *, attempt: int = 1, call: str = "2.3", **fields: Any) -> ToolResult:
        context = replace(CONTEXT, attempt=attempt, idempotency_key=f"r_1:{call}")
        return await self.tool.call({"op": op, "scope": "user", **fields}, context)


async def test_a_write_names_its_call_and_returns_its_position() -> None:
    here = Here()
    result = await here.call("set", key="k", value=[1])
    assert (result.is_error, result.positions) == (False, ("loom.entity.events/1:1",))
    assert json.loads(result.text)["revision"] == 1
    [command] = here.entities.asked
    assert (command.envelope.command_id, command.envelope.issued_at_ms) == ("r_1:2.3", NOW_MS)
    source = command.source
    assert (source.run_id, source.turn, source.call) == ("r_1", 2, 3)
    assert (source.agent, source.user_id, source.session_id) == ("helper", "ada", "s_1")
    assert json.loads((await here.call("get", call="3.0", key="k")).text)["value"] == [1]


async def test_a_call_that_is_made_again_has_its_effect_once_and_the_same_result() -> None:
    here = Here()
    first = await here.call("incr", key="n", delta=2)
    await here.call("incr", key="n", delta=40, call="2.4")
    again = await here.call("incr", key="n", delta=2, attempt=2)
    assert json.loads(first.text) == json.loads(again.text)
    assert json.loads((await here.call("get", call="3.0", key="n")).text)["value"] == 42
    assert here.entities.asked[-1].envelope.issued_at_ms == 0, "the owner looks it up, whatever it remembers"


async def test_a_caller_that_is_confined_to_itself_has_its_users_memory_only() -> None:
    here = Here(is_isolated=lambda tenant, subject: (tenant, subject) == ("acme", "token"))
    assert "(invalid_scope)" in (await here.call("get", key="k", scope="tenant")).text
    assert not (await here.call("get", key="k")).is_error


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_reducer_that_cannot_read_has_done_nothing_unless_an_earlier_attempt_has(
    attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here()
    await here.call("set", call="1.0", key="n", value=1)

    async def away(*ids: Any, **more: Any) -> Any:
        raise Transient("the database is away", kind="unavailable")

    here.entities.is_owner = False
    monkeypatch.setattr(here.entities, "load_items", away)
    result = await here.call("incr", key="n", attempt=attempt)
    assert (result.is_error, result.is_unknown) == (True, attempt > 1)
    assert (await here.call("get", key="n", attempt=attempt)).is_unknown is False


def test_reads_are_reads_and_writes_can_be_repeated() -> None:
    tool = Here().tool
    classes = {op: tool.effect_class({"op": op}) for op in tool.input_schema["properties"]["op"]["enum"]}
    reads = {"get", "list", "search", "recall", "sql_query", "cursor_get", "cursor_scan", "pending_drain"}
    assert {op for op, kind in classes.items() if kind is EffectClass.READ} == {*reads, "read_session"}
    assert set(classes.values()) == {EffectClass.READ, EffectClass.IDEMPOTENT}
    assert len(classes) == 25


def test_its_schema_has_the_fields_of_agents_alone() -> None:
    properties = Here().tool.input_schema["properties"]
    assert "scope_id" not in properties
    assert {"key", "value", "statement", "lease_ttl_ms"} <= set(properties)
    assert {"tenant", "run"} <= {name for form in properties["scope"]["anyOf"] for name in form["enum"]}
