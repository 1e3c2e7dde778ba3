"""A provider that fails: runs go on elsewhere, everybody passes it over, and a probe brings it back."""

from typing import Any

import pytest

from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack


def cascade(stack: Installation, *arguments: str) -> list[dict[str, Any]]:
    """The steps of the tier high, as an operator sees them."""
    (plan,) = stack.loomlog("routing", *arguments, "--json").json["user_tiers"]
    (tier,) = (tier for tier in plan["tiers"] if tier["tier"] == "high")
    return [step for step in tier["cascade"] if step["provider"] in ("down", "mock")]


def events_of_a_run(stack: Installation) -> list[str]:
    """What a run that may fall back went through, replayed from the log without a drift."""
    run_id = stack.loomlog("run", "resilient", "Hello", "--no-follow", "--json").json["run_id"]
    stack.loomlog("runs", "follow", run_id)
    replayed = stack.loomlog("replay", run_id, "--json").json
    assert replayed["drift"] == []
    return [event["type"] for event in replayed["events"]]


def test_a_run_falls_back_and_the_next_starts_where_it_went(stack: Installation) -> None:
    cascade(stack, "--probe")
    kinds = events_of_a_run(stack)
    assert kinds.count("ModelCallFailed") == 2, "a retry comes before a fallback"
    assert kinds[-4:] == ["ModelSwitched", "ModelCallRequested", "ModelReplied", "RunCompleted"]
    assert [(step["provider"], step["stalled"], step["selected"]) for step in cascade(stack)] == [
        ("down", True, False),
        ("mock", False, True),
    ]
    assert events_of_a_run(stack) == ["RunStarted", "ModelCallRequested", "ModelReplied", "RunCompleted"]


def test_a_probe_that_is_asked_for_brings_a_stalled_model_back(stack: Installation) -> None:
    events_of_a_run(stack)
    assert cascade(stack)[0]["stalled"]
    assert not cascade(stack, "--probe")[0]["stalled"]


def test_a_client_is_told_of_the_fallback(stack: Installation) -> None:
    cascade(stack, "--probe")
    assert (
        "continues with mock/mock-generic in place of down/mock-generic: mock 500"
        in stack.loomlog("run", "resilient", "Hello").out
    )
