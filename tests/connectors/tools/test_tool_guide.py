from typing import Any

import pytest

from loomlog.connectors.protocols import Tool
from loomlog.connectors.tools.bench import BenchTool
from loomlog.connectors.tools.registry import ToolOptions, build_tools
from loomlog.connectors.tools.server_info import ServerInfo
from loomlog.connectors.tools.tool_guide import (
    BLOCK_CHARACTERS_MAX,
    ToolGuide,
    has_placeholders,
    unknown_placeholders,
    with_guide,
)


class Plain:
    """A tool that says only what every tool has to."""

    def __init__(self, name: str, description: str = "Does it. In some way.") -> None:
        self.name = name
        self.description = description
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}, "required": ["a", "b"]}


def guide(*tools: Any) -> ToolGuide:
    catalogue: dict[str, Tool] = {tool.name: tool for tool in tools}
    return ToolGuide(catalogue, ServerInfo(code_agents=True))


def test_every_built_in_tool_has_a_hint_of_one_line() -> None:
    tools = build_tools(ToolOptions(bash_enabled=True, bench_enabled=True, ledger_path="unused"))
    hints = {name: getattr(tool, "usage_hint", "") for name, tool in tools.items()}
    assert all(0 < len(hint) <= 120 and "\n" not in hint for hint in hints.values()), hints


def test_placeholders_are_replaced_for_the_tools_of_the_run() -> None:
    prompt = "Use:\n{{tool:Context.tools}}\n--\n{{tool:Context.guide}}\n--\n{{tool:Context.capabilities}}"
    assert guide(BenchTool(), Plain("Other")).fill(prompt, ("Other", "Bench", "Gone")) == (
        "Use:\n- Other: Does it.\n- Bench: Returns 1,000 pseudo-random characters at once.\n--\n"
        "- Other (unknown; needs a, b)\n- Bench (pure): Only for measurements.\n--\n"
        "Available on this server: code_js\n"
        "Not available: bash, bashbox, consolidation, documents, full_text_memory, memory_layer, retention, sandbox, "
        "scheduler, search, sql_memory, vector_memory, webhooks"
    )


def test_no_tools_is_a_line_too() -> None:
    assert guide().fill("{{tool:Context.guide}}", ()) == "- none"


def test_a_backslash_keeps_a_placeholder_and_unknown_ones_stay() -> None:
    prompt = r"\{{tool:Context.tools}} {{tool:Context.other}} {{memory:user_info}}"
    assert guide().fill(prompt, ()) == "{{tool:Context.tools}} {{tool:Context.other}} {{memory:user_info}}"
    assert unknown_placeholders(prompt) == ("Context.other",)
    assert unknown_placeholders(r"\{{tool:anything}} {{tool:Context.guide}}") == ()


def test_what_a_tool_says_is_not_filled_in_again() -> None:
    tool = Plain("Sly", "Reads {{tool:Context.capabilities}}.")
    assert guide(tool).fill("{{tool:Context.tools}}", ("Sly",)) == "- Sly: Reads {{tool:Context.capabilities}}."


def test_a_long_block_is_cut_and_says_how_much_is_missing() -> None:
    tools = [Plain(f"tool_{number:04}", "x" * 90) for number in range(500)]
    text = guide(*tools).fill("{{tool:Context.tools}}", [tool.name for tool in tools])
    *rows, last = text.splitlines()
    assert len(text) < BLOCK_CHARACTERS_MAX + 100
    assert last == f"- and {500 - len(rows)} more: Context op tools lists all"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("", "{{tool:Context.guide}}"),
        ("Be brief.\n", "Be brief.\n\n{{tool:Context.guide}}"),
        ("A {{tool:Context.guide}} B", "A {{tool:Context.guide}} B"),
        (r"\{{tool:Context.guide}}", "\\{{tool:Context.guide}}\n\n{{tool:Context.guide}}"),
        ("{{tool:Context.tools}}", "{{tool:Context.tools}}\n\n{{tool:Context.guide}}"),
    ],
)
def test_the_guide_is_added_once(prompt: str, expected: str) -> None:
    assert with_guide(prompt) == expected
    assert has_placeholders(expected)
    assert not has_placeholders("plain {{memory:x}} {{tool}}")
