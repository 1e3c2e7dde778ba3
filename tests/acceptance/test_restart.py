"""Down and up again: everything is still there, and a review brings the stack up by itself."""

import pytest

from tests.acceptance.installation import START_TIMEOUT_S, Installation

pytestmark = pytest.mark.stack

ALL = "500"
"""More runs than all tests on this stack make."""


def test_after_down_and_up_everything_is_still_there(stack: Installation, reviewed: str) -> None:
    before = stack.loomlog("runs", "ls", "--limit", ALL, "--json").json
    replayed = stack.loomlog("replay", reviewed, "--json").json
    assert "Stopped in" in stack.loomlog("down").out
    assert "Nothing runs in" in stack.loomlog("status", code=3).out
    away = stack.loomlog("runs", "ls", code=3)
    assert "loomlog up" in away.err

    # The main job as `make run ONCE=1` does it: it starts everything, reviews, and stops everything.
    once = stack.loomlog("review", "--once", "--out", str(stack.report.parent), timeout_s=START_TIMEOUT_S).out
    assert "model: mock/mock-reviewer" in once
    assert f"Report    {stack.report}" in once
    assert "Stopped." in once
    stack.loomlog("status", code=3)

    assert "Ready after" in stack.up().out
    after = stack.loomlog("runs", "ls", "--limit", ALL, "--json").json
    assert after["runs"][1:] == before["runs"], "one run more, and the others as they were"
    assert stack.loomlog("replay", reviewed, "--json").json == replayed
