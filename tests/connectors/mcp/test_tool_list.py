"""Lists of tools of strangers: what is taken, what is left out, what is refused."""

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.mcp.tool_list import (
    TOOLS_MAX,
    build_tool_list,
    read_tool_list,
    visible_name,
)

SCHEMA = {"type": "object"}


def tool(name: str = "a", **fields: object) -> dict:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def test_names_become_names_that_every_provider_takes():
    assert visible_name("crm/eu", "notes.add") == "mcp__crm_eu__notes_add"


def test_a_list_is_the_same_whatever_its_order():
    one, other = build_tool_list("s", [tool("a"), tool("b")]), build_tool_list("s", [tool("b"), tool("a")])
    assert one == other
    assert one.digest == other.digest != build_tool_list("s", [tool("a")]).digest


def test_a_list_survives_the_log():
    listed = build_tool_list("s", [tool("a", annotations={"readOnlyHint": True}), tool("b", description="d")])
    assert read_tool_list("s", listed.to_json()) == listed
    assert [one.effect for one in listed.tools] == ["read", "unsafe"]


def test_another_schema_is_another_list():
    changed = build_tool_list("s", [tool(inputSchema={"type": "object", "required": ["x"]})])
    assert changed.digest != build_tool_list("s", [tool()]).digest


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (tool("a\x1b[2Jb"), "expected 1 to 128 of"),
        (tool(""), "expected 1 to 128 of"),
        (tool(7), "expected 1 to 128 of"),
        ("text", "expected 1 to 128 of"),
        (tool("x" * 100), "more than 64 characters"),
        (tool(inputSchema={"$ref": "http://169.254.169.254/"}), "leaves the schema"),
        (tool(inputSchema={"anyOf": [{"$ref": "#"}]}), "refers to itself"),
        (tool(inputSchema={"description": "x" * 70_000}), "at most 65536"),
        (tool(inputSchema={"type": "array"}), "is of no object"),
        (tool(inputSchema=[1]), "must be a JSON object"),
    ],
)
def test_a_tool_that_cannot_be_used_is_left_out_and_reported(entry, problem):
    listed = build_tool_list("s", [entry, tool("good")])
    assert [one.name for one in listed.tools] == ["good"]
    assert problem in listed.problems[0]


def test_two_tools_of_one_visible_name_are_one():
    listed = build_tool_list("s", [tool("a.b"), tool("a_b")])
    assert [one.name for one in listed.tools] == ["a.b"]
    assert "another tool" in listed.problems[0]


def test_control_characters_of_a_description_are_not_shown():
    [one] = build_tool_list("s", [tool(description="a\x1b[2Jb\n\x00c")]).tools
    assert one.description == "a [2Jb\n c"


def test_too_many_tools_are_refused_unless_some_are_chosen():
    entries = [tool(f"t{n}") for n in range(10_000)]
    with pytest.raises(Permanent, match=f"more than {TOOLS_MAX} tools"):
        build_tool_list("s", entries)
    assert len(build_tool_list("s", entries, ("t1", "t9999")).tools) == 2


def test_a_list_that_is_too_large_is_refused():
    schema = {"type": "object", "description": "x" * 60_000}
    with pytest.raises(Permanent, match="name fewer"):
        build_tool_list("s", [tool(f"t{n}", inputSchema=schema) for n in range(10)])
