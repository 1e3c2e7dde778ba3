import pytest

from loomlog.services.cli.terminal import tool_names
from loomlog.services.cli.terminal.tool_names import ToolNames


def test_events_of_a_call_begin_with_the_name_of_its_tool():
    names = ToolNames()
    names.annotate("r_1", "ModelReplied", {"turn": 1, "tool_calls": [{"name": "Read"}, {"name": "Grep"}]})
    assert names.annotate("r_1", "ToolReturned", {"turn": 1, "index": 1}) == {"tool": "Grep", "turn": 1, "index": 1}


@pytest.mark.parametrize(
    ("run_id", "type_", "payload"),
    [
        ("r_2", "ToolReturned", {"turn": 1, "index": 0}),
        ("r_1", "ToolReturned", {"turn": 2, "index": 0}),
        ("r_1", "ToolReturned", {"turn": 1, "index": 7}),
        ("r_1", "ModelCallRequested", {"turn": 1, "index": 0}),
    ],
)
def test_what_is_not_known_is_left_as_it_is(run_id, type_, payload):
    names = ToolNames()
    names.annotate("r_1", "ModelReplied", {"turn": 1, "tool_calls": [{"name": "Read"}]})
    assert names.annotate(run_id, type_, payload) == payload


def test_the_oldest_turns_are_forgotten(monkeypatch):
    monkeypatch.setattr(tool_names, "LIVE_TURNS_MAX", 2)
    names = ToolNames()
    for turn in range(3):
        names.annotate("r_1", "ModelReplied", {"turn": turn, "tool_calls": [{"name": "Read"}]})
    assert "tool" not in names.annotate("r_1", "ToolReturned", {"turn": 0, "index": 0})
    assert "tool" in names.annotate("r_1", "ToolReturned", {"turn": 2, "index": 0})
