from typing import Any

import orjson
import pytest

from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, VolumeBinding
from loomlog.connectors.tools.bench import BenchTool
from loomlog.connectors.tools.context import ContextTool, ServerInfo
from loomlog.schemas.generated.values import Compaction, Sampling
from tests.connectors.tools.given import context

SERVER = ServerInfo(version="1.2", commit="abc", build_time="then", listen_addr="127.0.0.1:1", url="http://x")


class Foreign:
    """A tool of another server: it says nothing about side effects."""

    name = "mcp__a__b"
    description = "theirs"
    input_schema: dict[str, Any] = {"type": "object"}


def tool() -> ContextTool:
    catalogue: dict[str, Tool] = {}
    made = ContextTool(server=SERVER, catalogue=catalogue, clock_ms=lambda: 1_700_000_005_250)
    catalogue |= {"Context": made, "Bench": BenchTool(), "mcp__a__b": Foreign()}  # type: ignore[dict-item] # never called
    return made


async def told(op: str, run: ToolContext) -> Any:
    result = await tool().call({"op": op}, run)
    assert not result.is_error
    return orjson.loads(result.text)


async def test_self_tells_what_is_known() -> None:
    run = context(
        allowed_hosts=("a.example",),
        hosts_source="caller",
        used_tokens=25,
        max_tokens=200,
        sampling=Sampling(temperature=0.0, stop=("x",)),
        volumes=(VolumeBinding(name="work", path="/data/work", mode="rw", is_default=True),),
    )
    assert await told("self", run) == {
        "agent_name": "writer",
        "agent_id": "agent-1",
        "user_id": "user-1",
        "tenant_id": "acme",
        "user_tier": "pro",
        "run_id": "run-1",
        "session_id": "session-1",
        "provider": "scripted",
        "model": "scripted-1",
        "sampling": {"temperature": 0.0, "stop": ["x"]},
        "context": {"used_tokens": 25, "max_tokens": 200, "used_pct": 12.5},
        "volumes": {
            "bindings": [{"name": "work", "path": "/data/work", "mode": "rw", "default": True}],
            "path_convention": "Paths are relative to the volume's root. A call that names no volume uses the default.",
        },
        "network": {"allowed_hosts": ["a.example"], "source": "caller"},
        "principal": {"tenant_id": "acme", "subject": "ann"},
        "loomcycle": {"version": "1.2", "commit": "abc", "build_time": "then"},
        "server": {"listen_addr": "127.0.0.1:1", "url": "http://x"},
    }


async def test_self_tells_how_the_conversation_is_compacted() -> None:
    run = context(compaction=Compaction(enabled=True, keep_last_n=0, keep_first=False))
    assert (await told("self", run))["compaction"] == {"enabled": True, "keep_last_n": 0, "keep_first": False}


async def test_compact_asks_for_a_compaction_and_nothing_else_does() -> None:
    run = context(used_tokens=150, max_tokens=200)
    answer = await tool().call({"op": "compact"}, run)
    assert answer.asks_compaction
    assert not answer.is_error
    assert orjson.loads(answer.text) == {
        "scheduled": True,
        "when": "before the next turn",
        "context": {"used_tokens": 150, "max_tokens": 200, "used_pct": 75.0},
    }
    for op in ("self", "tools", "time"):
        assert not (await tool().call({"op": op}, run)).asks_compaction


async def test_self_leaves_out_what_is_not_known_and_sends_lists_as_lists() -> None:
    answer = await told("self", context())
    assert answer["network"] == {"allowed_hosts": [], "source": "operator_default"}
    assert answer["filesystem"].startswith("No volume")
    assert not {"sampling", "context", "volumes"} & set(answer)


async def test_tools_are_those_of_the_run_with_their_own_side_effect_class() -> None:
    answer = await told("tools", context(tools=("mcp__a__b", "Context", "Gone")))
    assert answer["count"] == 2
    assert [(row["name"], row["side_effect_class"]) for row in answer["tools"]] == [
        ("mcp__a__b", "unknown"),
        ("Context", "pure"),
    ]
    assert await told("tools", context()) == {"tools": [], "count": 0}


async def test_time_tells_now_and_how_long() -> None:
    assert await told("time", context(started_at_ms=1_700_000_000_000)) == {
        "now_rfc3339": "2023-11-14T22:13:25.250Z",
        "unix_ms": 1_700_000_005_250,
        "run_started_at": "2023-11-14T22:13:20.000Z",
        "elapsed_ms": 5250,
    }


async def test_a_clock_that_runs_behind_gives_no_negative_time() -> None:
    assert (await told("time", context(started_at_ms=1_800_000_000_000)))["elapsed_ms"] == 0


@pytest.mark.parametrize("arguments", [{"op": "lineage"}, {}, {"op": "self", "name": "x"}])
async def test_an_unknown_op_is_an_error_that_lists_the_ops(arguments: dict[str, str]) -> None:
    result = await tool().call(arguments, context())
    assert result.is_error
    assert "self, tools, time" in result.text or '"name" is unknown, expected are op' in result.text
    assert tool().effect_class(arguments) is EffectClass.PURE
