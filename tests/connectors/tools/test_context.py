from collections.abc import Sequence
from typing import Any, cast

import orjson
import pytest

from loomlog.connectors.protocols import DefinitionsView, EffectClass, Tool, ToolContext, VolumeBinding
from loomlog.connectors.tools.bench import BenchTool
from loomlog.connectors.tools.context import CHANNELS_MAX, ChannelRows, ContextTool
from loomlog.connectors.tools.help import HelpTopic, HelpTopics
from loomlog.connectors.tools.server_info import MemoryInfo, ServerInfo
from loomlog.schemas.generated.values import Compaction, Sampling
from tests.connectors.tools.given import context

SERVER = ServerInfo(
    version="1.2",
    commit="abc",
    build_time="then",
    listen_addr="127.0.0.1:1",
    url="http://x",
    code_agents=True,
    max_request_bytes=1024,
)


class Foreign:
    """A tool of another server: it says nothing about side effects."""

    name = "mcp__a__b"
    description = "theirs"
    input_schema: dict[str, Any] = {"type": "object"}


TOPICS = HelpTopics(
    [
        HelpTopic(
            name="Volumes",
            description="Folders of agents.",
            content="# Volumes\n\nA volume is a folder.",
            source="operator",
            aliases=("folders",),
        )
    ]
)


class Lineages:
    """The definitions of one tenant, which notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def agents(self, tenant: str, prefix: str) -> list[dict[str, Any]]:
        self.asked.append((tenant, prefix))
        return [{"name": "writer", "tools_count": 2}]

    async def lineage(self, tenant: str, def_id: str, depth: int) -> dict[str, Any] | None:
        self.asked.append((tenant, def_id, depth))
        return {"root": def_id, "depth": depth} if def_id == "def_1" else None

    async def evaluations(
        self, tenant: str, def_id: str, include_lineage: bool, positions: Sequence[str]
    ) -> dict[str, Any] | None:
        self.asked.append((tenant, def_id, include_lineage, positions))
        return {"count": 0} if def_id == "def_1" else None


def tool(definitions: DefinitionsView | None = None, channels: ChannelRows | None = None) -> ContextTool:
    catalogue: dict[str, Tool] = {}
    made = ContextTool(
        server=SERVER,
        catalogue=catalogue,
        help_topics=TOPICS,
        definitions=definitions,
        channels=channels,
        clock_ms=lambda: 1_700_000_005_250,
    )
    catalogue |= {"Context": made, "Bench": BenchTool(), "mcp__a__b": Foreign()}  # type: ignore[dict-item] # never called
    return made


async def told(op: str, run: ToolContext, definitions: DefinitionsView | None = None, **fields: Any) -> Any:
    result = await tool(definitions).call({"op": op, **fields}, run)
    assert not result.is_error, result.text
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
            "bindings": [{"name": "work", "mode": "rw", "default": True}],
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
    assert "self, tools, time" in result.text or '"name" is unknown, expected are op.' in result.text
    assert tool().effect_class(arguments) is EffectClass.PURE


async def test_self_names_the_version_of_the_definition() -> None:
    assert (await told("self", context(agent_def_id="def_1")))["agent_def_id"] == "def_1"
    assert "agent_def_id" not in await told("self", context())


async def test_guide_is_short_and_has_what_a_call_needs() -> None:
    rows = (await told("guide", context(tools=("Context", "Bench", "mcp__a__b", "Gone"))))["tools"]
    assert [row["name"] for row in rows] == ["Context", "Bench", "mcp__a__b"]
    assert rows[0]["ops"] == list(tool().operations)
    assert rows[0]["hint"] == ContextTool.usage_hint
    assert rows[2] == {"name": "mcp__a__b", "side_effect_class": "unknown"}


async def test_doc_explains_a_granted_tool_and_no_other() -> None:
    run = context(tools=("Bench",))
    assert await told("doc", run, name="Bench") == {
        "name": "Bench",
        "description": BenchTool.description,
        "input_schema": BenchTool.input_schema,
        "side_effect_class": "pure",
    }
    for name in ("Context", "Gone"):
        result = await tool().call({"op": "doc", "name": name}, run)
        assert result.is_error
        assert result.text.endswith("its tools are Bench.")
    result = await tool().call({"op": "doc"}, run)
    assert result.is_error
    assert '"name" is missing' in result.text


async def test_permissions_are_the_grants_of_the_agent() -> None:
    run = context(
        tools=("Bench",),
        allowed_hosts=("a.example",),
        hosts_source="caller",
        grants={
            "memory_scopes": ("user",),
            "memory_quota_bytes": 5,
            "channels_publish": ("alerts",),
            "skills": ("+doc/*",),
            "evaluation_scopes": ("read_any",),
            "agent_def_scopes": ("self",),
        },
    )
    assert await told("permissions", run) == {
        "tools": ["Bench"],
        "host_policy": {"has_list": True, "allowed_hosts": ["a.example"]},
        "memory": {"allowed_scopes": ["user"], "quota_bytes": 5},
        "channels": {"publish": ["alerts"], "subscribe": []},
        "skills": ["+doc/*"],
        "evaluation_scopes": ["read_any"],
        "agent_def_scopes": ["self"],
        "volume_def_scopes": [],
        "schedule_def_scopes": [],
        "a2a_agent_def_scopes": [],
        "a2a_server_card_def_scopes": [],
    }
    plain = await told("permissions", context())
    assert plain["host_policy"] == {"has_list": False, "allowed_hosts": []}
    assert plain["memory"] == {"allowed_scopes": [], "quota_bytes": 0}


async def test_capabilities_say_what_is_here_and_what_is_not() -> None:
    answer = await told("capabilities", context())
    assert answer["code_js"] == {"available": True}
    assert answer["bash"] == answer["scheduler"] == {"available": False}
    assert answer["search"] == {"available": False, "providers": []}
    assert answer["limits"] == {"max_request_bytes": 1024}
    assert answer["sql_memory"] == answer["vector_memory"] == {"available": False}
    assert "memory" not in answer, "it is the memory of runs, and there is none"


@pytest.mark.parametrize("embedder", [None, {"provider": "stub", "dimension": 256}])
async def test_capabilities_say_what_memory_a_run_has(embedder: dict[str, Any] | None) -> None:
    class Memory(Foreign):
        name = "Memory"

    info = MemoryInfo(embedder=embedder, sql=True, consolidator=True, bands={"merge_threshold": 0.95})
    tool = ContextTool(
        server=ServerInfo(memory=info), catalogue=cast(Any, {"Memory": Memory()}), help_topics=HelpTopics([])
    )
    grants = {"memory_scopes": ("user", "agent"), "sql_scopes": ("user",), "memory_backend": "central"}
    result = await tool.call({"op": "capabilities"}, context(grants=grants))
    answer = orjson.loads(result.text)
    assert answer["memory"] == {
        "scopes": ["user", "agent"],
        "sql_scopes": ["user"],
        "embedder": embedder,
        "search": "hybrid" if embedder else "lexical",
        "backend": "central",
        "bands": {"merge_threshold": 0.95},
    }
    available = {"available": True}
    assert answer["memory_layer"] == answer["full_text_memory"] == answer["sql_memory"] == available
    assert answer["vector_memory"] == ({**available, "embedder": embedder} if embedder else {"available": False})
    assert answer["consolidation"] == {
        "available": True, "configured": True, "merge_threshold": 0.95,
        "verify_writes": False, "detect_conflicts": False,
    }  # fmt: skip
    without = orjson.loads((await tool.call({"op": "capabilities"}, context())).text)["memory"]
    assert (without["scopes"], without["sql_scopes"], without["backend"]) == ([], [], "inprocess")


async def test_help_lists_opens_and_searches_topics() -> None:
    index = await told("help", context())
    assert index["topics"] == [{"name": "Volumes", "description": "Folders of agents.", "source": "operator"}]
    assert index["count"] == 1
    for name in ("Volumes", "volumes", "FOLDERS"):
        topic = await told("help", context(), topic=name)
        assert (topic["name"], topic["source"]) == ("Volumes", "operator")
        assert topic["content"].endswith("A volume is a folder.")
    results = await told("help", context(), query="folder", mode="hybrid")
    assert (results["mode"], results["results"][0]["topic_slug"]) == ("substring", "Volumes")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"topic": "nothing"}, 'no help topic "nothing"; topics: Volumes'),
        ({"topic": "Volumes", "query": "x"}, '"topic" or "query", not both'),
        ({"query": ""}, '"query" is empty'),
        ({"query": "x", "mode": "other"}, "expected is one of hybrid, substring"),
        ({"name": "x"}, '"name" is unknown, expected are op, topic, query, mode'),
    ],
)
async def test_help_refuses_what_it_cannot_answer(fields: dict[str, str], expected: str) -> None:
    result = await tool().call({"op": "help", **fields}, context())
    assert result.is_error
    assert expected in result.text


async def test_ops_about_definitions_exist_with_a_view_of_them_only() -> None:
    assert not {"agents", "lineage", "evaluations"} & set(tool().operations)
    assert "def_id" not in tool().input_schema["properties"]
    view = Lineages()
    run = context(positions=("t/0:1",))
    assert await told("agents", run, view) == {"agents": [{"name": "writer", "tools_count": 2}], "count": 1}
    assert await told("agents", run, view, prefix="w")
    assert await told("lineage", run, view, def_id="def_1") == {"root": "def_1", "depth": 10}
    assert await told("lineage", run, view, def_id="def_1", depth=100)
    assert await told("evaluations", run, view, def_id="def_1", include_lineage=True) == {"count": 0}
    assert view.asked == [
        ("acme", ""),
        ("acme", "w"),
        ("acme", "def_1", 10),
        ("acme", "def_1", 100),
        ("acme", "def_1", True, ("t/0:1",)),
    ]


@pytest.mark.parametrize("op", ["lineage", "evaluations"])
async def test_a_definition_of_another_tenant_is_not_found(op: str) -> None:
    result = await tool(Lineages()).call({"op": op, "def_id": "def_2"}, context())
    assert result.is_error
    assert result.text == 'The definition "def_2" was not found.'


@pytest.mark.parametrize("depth", [0, 101])
async def test_a_depth_out_of_bounds_is_refused(depth: int) -> None:
    result = await tool(Lineages()).call({"op": "lineage", "def_id": "def_1", "depth": depth}, context())
    assert result.is_error
    assert f'"depth" is {depth}' in result.text


def channels(*names: str) -> ChannelRows:
    """Return a view of channels, whose tenant is a field of each row."""
    return lambda tenant, prefix: [{"name": one, "scope": tenant} for one in names if one.startswith(prefix)]


async def test_channels_are_told_with_what_the_run_may_do_with_each() -> None:
    run = context(
        tenant="acme", grants={"channels_publish": ("work/a", "notes/*"), "channels_subscribe": ("work/b", "notes/*")}
    )
    view = tool(channels=channels("notes/x", "work/a", "work/b"))
    answer = orjson.loads((await view.call({"op": "channels"}, run)).text)
    assert answer == {
        "channels": [
            {"name": "notes/x", "scope": "acme", "publish": False, "subscribe": False},
            {"name": "work/a", "scope": "acme", "publish": True, "subscribe": False},
            {"name": "work/b", "scope": "acme", "publish": False, "subscribe": True},
        ],
        "count": 3,
        "publish_wildcards": ["notes/*"],
        "subscribe_wildcards": ["notes/*"],
    }
    narrowed = orjson.loads((await view.call({"op": "channels", "prefix": "work/"}, run)).text)
    assert [row["name"] for row in narrowed["channels"]] == ["work/a", "work/b"]


async def test_a_long_list_of_channels_is_cut_and_says_so() -> None:
    view = tool(channels=channels(*(f"c{number:04}" for number in range(CHANNELS_MAX + 5))))
    answer = orjson.loads((await view.call({"op": "channels"}, context())).text)
    assert (len(answer["channels"]), answer["count"], answer["truncated"]) == (CHANNELS_MAX, CHANNELS_MAX + 5, True)


def test_without_channels_there_is_no_op_about_them() -> None:
    assert "channels" not in tool().operations
    assert "channels" in tool(channels=channels()).operations
