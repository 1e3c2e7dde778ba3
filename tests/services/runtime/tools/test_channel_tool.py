"""The tool of channels: what an agent's call becomes, and what its result says about the effect."""

import json
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.generated.values import CallRef
from loomlog.schemas.records import replace
from loomlog.services.runtime.tools.operation_tools import IsIsolated
from tests.services.entities import NOW_MS
from tests.services.families.channel.callers import ALL, Installation
from tests.services.families.channel.tool import channel_tool, nobody

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
    tools=("Channel",),
    idempotency_key="r_1:2.3",
    grants={"channels_publish": ALL, "channels_subscribe": ALL},
)


class Here:
    """The tool over queues in memory."""

    def __init__(self, context: ToolContext = CONTEXT, *, is_isolated: IsIsolated = nobody) -> None:
        self.installation = Installation()
        self.entities = self.installation.entities
        self.tool = channel_tool(self.installation.operations, is_isolated=is_isolated)
        self.context = context

    async def call(self, op: str, *, attempt: int = 1, call: str = "2.3", **fields: Any) -> ToolResult:
        context = replace(self.context, attempt=attempt, idempotency_key=f"r_1:{call}")
        return await self.tool.call({"op": op, **fields}, context)


async def test_a_publish_names_its_call_and_returns_its_position_and_message() -> None:
    here = Here()
    result = await here.call("publish", channel="inbox", value={"n": 1})
    assert (result.is_error, result.positions) == (False, ("loom.entity.events/1:1",))
    [use] = result.channels
    assert json.loads(result.text)["message_id"] == use.message_id
    [command] = here.entities.asked
    assert (command.envelope.command_id, command.envelope.issued_at_ms) == ("r_1:2.3", NOW_MS)
    assert (command.envelope.subject, command.scope_id, command.publisher) == ("ada", "ada", "ada")


async def test_what_is_read_is_named_with_its_lease() -> None:
    here = Here()
    await here.call("publish", channel="team", value="ä")
    result = await here.call("subscribe", call="3.0", channel="team")
    assert json.loads(result.text)["messages"][0]["value"] == "ä"
    [lease] = result.leases
    assert (lease.lease_id, lease.taken, lease.queue.channel) == ("r_1:3.0", 1, "team")
    assert here.entities.asked[-1].call == CallRef(run_id="r_1", turn=3, index=0)


async def test_without_messages_the_call_waits() -> None:
    result = await Here().call("subscribe", channel="team", wait_ms=5_000)
    assert result.waiting is not None
    assert (result.waiting.wait_id, result.waiting.until_ms) == ("r_1:2.3", NOW_MS + 5_000)
    assert not result.is_error


async def test_isolated_subjects_are_confined() -> None:
    here = Here(is_isolated=lambda tenant, subject: (tenant, subject) == ("acme", "token"))
    assert "insufficient_scope" in (await here.call("publish", channel="team", value=1)).text
    assert not (await here.call("publish", channel="inbox", value=1)).is_error


async def test_list_channels_tells_the_patterns() -> None:
    here = Here(replace(CONTEXT, grants={"channels_publish": ["work/*"]}))
    assert json.loads((await here.call("list_channels")).text) == {"publish": ["work/*"], "subscribe": []}


def test_effect_classes_and_the_schema() -> None:
    tool = Here().tool
    ops = tool.input_schema["properties"]["op"]["enum"]
    classes = {op: tool.effect_class({"op": op}) for op in (*ops, "drop")}
    assert {op for op, one in classes.items() if one is EffectClass.READ} == {"peek", "list_channels"}
    assert [op for op, one in classes.items() if one is EffectClass.PURE] == ["drop"]
    fields = set(tool.input_schema["properties"]) - {"op"}
    assert not fields & {"scope", "scope_id", "user_id", "order"}
    assert fields >= {"channel", "channels", "value", "wait_ms", "cursor", "reader"}
