from pathlib import Path

import orjson
import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_skills import FileSkills
from loomlog.connectors.tools.registry import ToolOptions, build_specs, build_tools, select_granted
from tests.connectors.tools.given import binding, context

ALWAYS = ["Agent", "Context", "Read", "Write", "Edit", "Glob", "Grep", "HTTP", "WebFetch"]


def test_what_the_operator_did_not_enable_does_not_exist() -> None:
    assert list(build_tools(ToolOptions())) == [*ALWAYS, "Interruption"]


def test_what_the_operator_enabled_exists(tmp_path: Path) -> None:
    options = ToolOptions(
        bash_enabled=True, bench_enabled=True, ledger_path=str(tmp_path / "l"), ledger_effect=EffectClass.IDEMPOTENT
    )
    tools = build_tools(options)
    assert list(tools) == [*ALWAYS, "Bash", "Bench", "Ledger", "Interruption"]
    assert tools["Ledger"].effect_class({}) is EffectClass.IDEMPOTENT


def test_the_tool_for_skills_comes_last_and_no_pattern_grants_it() -> None:
    without, tools = build_tools(ToolOptions()), build_tools(ToolOptions(skills=FileSkills({}, lambda name, skill: "")))
    assert list(tools) == [*without, "Skill"]
    assert build_specs(tools, ["*", "Sk*"]) == build_specs(without, ["*", "Sk*"])
    assert [spec.name for spec in build_specs(tools, ["Skill", "Re*"])] == ["Read", "Skill"]


async def test_options_reach_the_tools(tmp_path: Path) -> None:
    options = ToolOptions(
        bash_enabled=True, bash_env_names=("TOKEN",), environment={"PATH": "/usr/bin:/bin", "TOKEN": "t", "OTHER": "o"}
    )
    tool = build_tools(options)["Bash"]
    result = await tool.call({"command": "echo $TOKEN$OTHER"}, context(volumes=(binding(tmp_path),)))
    assert result.text == "t\n[exit status 0]"


async def test_context_sees_tools_that_are_added_later() -> None:
    tools = build_tools(ToolOptions())
    tools["mcp__a__b"] = tools["Read"]
    result = await tools["Context"].call({"op": "tools"}, context(tools=("mcp__a__b",)))
    assert orjson.loads(result.text)["count"] == 1


AVAILABLE = ["Read", "Write", "HTTP", "WebFetch", "mcp__a__x", "mcp__a__y", "mcp__b__x"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Read", "HTTP"], ("Read", "HTTP")),
        (["HTTP", "Read", "Read"], ("Read", "HTTP")),
        (["*"], tuple(AVAILABLE)),
        (["mcp__a__*"], ("mcp__a__x", "mcp__a__y")),
        (["mcp__*__x", "*ead", "R*d"], ()),
        (["read"], ()),
        (["WebFetchTool"], ("WebFetch",)),
        ([""], ()),
        ([], ()),
    ],
)
def test_names_and_trailing_stars_grant(names: list[str], expected: tuple[str, ...]) -> None:
    assert select_granted(names, AVAILABLE) == expected


def test_specs_are_what_the_tools_say_and_can_be_sent() -> None:
    tools = build_tools(ToolOptions(bash_enabled=True))
    specs = build_specs(tools, ["Re*", "Bash", "Gone"])
    assert [spec.name for spec in specs] == ["Read", "Bash"]
    assert specs[0].description == tools["Read"].description
    schemas = [orjson.loads(orjson.dumps(dict(spec.input_schema))) for spec in build_specs(tools, ["*"])]
    assert all(schema["additionalProperties"] is False for schema in schemas)


async def test_every_tool_refuses_an_unknown_argument_and_says_what_it_expected(tmp_path: Path) -> None:
    tools = build_tools(ToolOptions(bash_enabled=True, bench_enabled=True, ledger_path=str(tmp_path / "ledger")))
    for name, tool in tools.items():
        result = await tool.call({"surprise": 1}, context(volumes=(binding(tmp_path),), allowed_hosts=("*",)))
        assert result.is_error, name
        assert "surprise" in result.text, name
        assert tool.timeout_s > 0
    assert list(tmp_path.iterdir()) == []
