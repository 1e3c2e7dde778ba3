"""The main job on real input: an agent reviews a folder, and its report names what is really there."""

import pytest

from tests.acceptance.installation import PLANTED, Installation
from tests.acceptance.lab_model import KEY, LabModel

pytestmark = pytest.mark.stack


def test_the_report_names_every_planted_finding_with_file_and_line(stack: Installation, reviewed: str) -> None:
    report = stack.report.read_text()
    for name, findings in PLANTED.items():
        for line in findings:
            assert f"{name}:{line}`" in report, f"{name}:{line} is not in\n{report}"
    assert "fine_" not in report


def test_a_secret_is_named_by_its_place_and_not_by_its_value(stack: Installation, reviewed: str) -> None:
    assert "sk-planted-000011112222" not in stack.report.read_text()


def test_the_review_is_told_as_it_happens(stack: Installation) -> None:
    shown = stack.loomlog("review").out
    for said in ("uses the stack that runs here", "turn 1", "Glob", "Grep", "Read", "Write", "tokens in", "completed"):
        assert said in shown, said
    assert f"Report    {stack.report}" in shown
    assert "event loom.run.events/" in shown


def test_the_tools_were_really_called_and_returned(stack: Installation, reviewed: str) -> None:
    frames = stack.loomlog("runs", "show", reviewed, "--json").json["frames"]
    called = {frame["event"]["tool_use"]["name"] for frame in frames if frame["type"] == "tool_call"}
    assert called == {"Glob", "Grep", "Read", "Write"}
    results = [frame for frame in frames if frame["type"] == "tool_result"]
    assert len(results) == sum(frame["type"] == "tool_call" for frame in frames)


def test_the_same_work_is_done_on_a_model_of_somebody_elses(stack: Installation) -> None:
    lab = LabModel(stack.lab_port)
    try:
        shown = stack.loomlog("run", "lab-reviewer", "Review the shop.").out
    finally:
        lab.close()
    assert "- shop/orders.py:4\n" in (stack.report.parent / "lab.md").read_text()
    assert "1,000 tokens in, 10 out, 0.0032 USD   lab/lab-1" in shown
    assert "5 turns, 4 tool calls, 5,000 tokens in, 50 out, 0.0158 USD" in shown
    assert {(asked["path"], asked["authorization"]) for asked in lab.asked} == {
        ("/v1/chat/completions", f"Bearer {KEY}")
    }


def test_another_folder_is_refused_while_the_stack_shows_this_one(stack: Installation) -> None:
    refused = stack.loomlog("review", str(stack.folder), code=1)
    assert str(stack.project) in refused.err
    assert "loomlog down" in refused.err
