"""A session that has become long, made shorter as an operator does it, against a stack that runs."""

import pytest

from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack
LONG = "and here is a long story that nobody needs twice. " * 20


def test_a_session_is_compacted_and_its_next_run_starts_from_the_summary(stack: Installation) -> None:
    first = stack.loomlog("run", "assistant", f"Remember 42. {LONG}", "--no-follow", "--json").json
    session = ("--session", first["session_id"])
    stack.loomlog("runs", "follow", first["run_id"])
    for number in range(3):
        stack.loomlog("run", "assistant", f"Part {number}. {LONG}", *session)
    done = stack.loomlog("runs", "compact", first["run_id"], "--reason", "too long", "--json").json
    assert (done["compacted"], done["applied"]) == (True, "marker")
    assert done["after_tokens"] < done["before_tokens"]
    seed = stack.loomlog("runs", "ls", *session, "--limit", "1", "--json").json["runs"][0]
    assert (seed["status"], seed["stop_reason"], seed["compactions"]) == ("completed", "compacted", 1)
    assert "conversation compacted (manual)" in stack.loomlog("runs", "show", seed["run_id"]).out
    assert stack.loomlog("replay", seed["run_id"], "--json").json["drift"] == []
    stack.loomlog("run", "assistant", "Go on.", *session)
    latest = stack.loomlog("runs", "ls", *session, "--limit", "1", "--json").json["runs"][0]
    assert latest["continues_run_id"] == seed["run_id"]
    shown = stack.loomlog("runs", "show", latest["run_id"], "--at", "1", "--json").json
    texts = str(shown["messages"])
    assert "Remember 42." in texts
    assert "<summary>" in texts
    assert "Part 0." not in texts
    assert "Part 2." in texts
    assert stack.loomlog("replay", latest["run_id"], "--json").json["drift"] == []
