from dataclasses import replace
from pathlib import Path

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.registry import ToolOptions, build_tools
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.runtime.given import ToldTool

SHELF = ProcessToolset({name: ToldTool(name=name) for name in ("Read", "Write", "mcp__git__log")})


def test_a_tool_is_found_by_its_name() -> None:
    tool = SHELF.find("Read")
    assert tool is not None
    assert tool.name == "Read"
    assert SHELF.find("Nobody") is None


def test_the_model_is_shown_what_was_granted_by_name_or_pattern() -> None:
    assert [spec.name for spec in SHELF.specs(("Read", "mcp__*", "Gone"))] == ["Read", "mcp__git__log"]
    assert SHELF.specs(()) == ()


def test_the_same_grant_is_described_once() -> None:
    assert SHELF.specs(("Read", "Write")) is SHELF.specs(("Read", "Write"))


def test_a_call_is_classed_by_its_arguments() -> None:
    assert SHELF.effect_class("Read", "{}") == EffectClass.READ.value
    assert SHELF.effect_class("Read", '{"write":true}') == EffectClass.UNSAFE.value
    assert SHELF.effect_class("Read", "not json") == EffectClass.READ.value


def test_only_a_tool_with_a_reconciler_can_be_asked(tmp_path: Path) -> None:
    options = ToolOptions(ledger_path=str(tmp_path / "ledger"))
    plain, asked = (ProcessToolset(build_tools(replace(options, ledger_reconciles=flag))) for flag in (False, True))
    assert asked.is_reconcilable("Ledger")
    assert not plain.is_reconcilable("Ledger")
    assert not asked.is_reconcilable("Read")
    assert not asked.is_reconcilable("Nobody")


def test_a_tool_nobody_has_has_no_effect() -> None:
    assert SHELF.effect_class("Nobody", "{}") == EffectClass.PURE.value


def test_a_tool_is_found_and_granted_by_the_name_it_had_before() -> None:
    tools = ProcessToolset(build_tools(ToolOptions()))
    assert tools.find("WebFetchTool") is tools.find("WebFetch") is not None
    assert tools.effect_class("WebFetchTool", "{}") == tools.effect_class("WebFetch", "{}") != EffectClass.PURE.value
    assert [spec.name for spec in tools.specs(("WebFetchTool",))] == ["WebFetch"]
    for granted in ("WebFetch", "WebFetchTool", "Web*"):
        assert tools.grants((granted,), "WebFetchTool")
        assert tools.grants((granted,), "WebFetch")
    assert not tools.grants(("Read",), "WebFetchTool")
