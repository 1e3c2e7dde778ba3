import pytest

from loomlog.connectors.definitions import KINDS, covers


@pytest.mark.parametrize(
    ("granted", "wanted", "missing"),
    [
        (["Read"], ["Read"], ()),
        (["Read"], ["Read", "Write", "Bash"], ("Write", "Bash")),
        (["*"], ["Read", "mcp__a__*", "*"], ()),
        (["mcp__a__*"], ["mcp__a__x", "mcp__a__x*", "mcp__a__*", "mcp__b__x", "mcp__*"], ("mcp__b__x", "mcp__*")),
        (["Read"], ["Rea*", "Read*", "*"], ("Rea*", "Read*", "*")),
        (["client:read*"], ["client__read_page", "client:readers"], ()),
        (["a*b"], ["axb"], ("axb",)),
        ([], [], ()),
        ([], [""], ("",)),
    ],
)
def test_wanted_tools_that_no_grant_covers(granted: list[str], wanted: list[str], missing: tuple[str, ...]):
    assert covers(granted, wanted) == missing


def test_tools_of_a_definition():
    assert KINDS["agent"].tools({"tools": ["Read"]}) == ("Read", "Context")
    assert KINDS["agent"].tools({"tools": ["Context"]}) == ("Context",)
    assert KINDS["agent"].tools({"tools": ["Read"], "disable_context": True}) == ("Read",)
    assert KINDS["skill"].tools({"body": "b"}) == ()
    assert KINDS["skill"].tools({"body": "b", "tools": ["Read"]}) == ("Read",)
    assert [name for name, kind in KINDS.items() if kind.tools({}) is None] == list(KINDS)[2:]
