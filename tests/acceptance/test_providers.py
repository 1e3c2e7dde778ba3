"""The same job on other vendors' wires: what a turn needs to be continued survives the log and goes back."""

import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.lab_model import KEY, LabModel
from tests.acceptance.lab_wires import SIGNATURE, WINDOW

pytestmark = pytest.mark.stack


def reviewed_by(stack: Installation, agent: str) -> tuple[str, LabModel]:
    written = stack.report.parent / "lab.md"
    written.unlink(missing_ok=True)
    lab = LabModel(stack.lab_port)
    try:
        shown = stack.loomlog("run", agent, "Review the shop.").out
    finally:
        lab.close()
    assert "- shop/orders.py:4\n" in written.read_text()
    return shown, lab


def test_a_review_on_geminis_wire_gives_every_signature_back(stack: Installation) -> None:
    shown, lab = reviewed_by(stack, "gemini-reviewer")
    assert "5 turns, 4 tool calls, 5,000 tokens in, 50 out" in shown
    turns = [asked for asked in lab.asked if asked["path"].endswith("alt=sse")]
    assert len(turns) == 5
    assert str(turns[-1]["contents"]).count(SIGNATURE) == 4
    assert KEY not in str(turns)


def test_a_review_on_ollamas_wire_recovers_a_written_call_and_knows_the_window(stack: Installation) -> None:
    shown, lab = reviewed_by(stack, "ollama-reviewer")
    assert "5 turns, 4 tool calls, 5,000 tokens in, 50 out" in shown
    assert "<tool_call>" not in shown
    turns = [asked for asked in lab.asked if asked["path"] == "/api/chat"]
    assert [message["role"] for message in turns[-1]["messages"][-2:]] == ["assistant", "tool"]
    assert turns[-1]["messages"][-2]["thinking"] == "Now Write."
    run_id = stack.loomlog("runs", "ls", "--agent", "ollama-reviewer", "--json").json["runs"][0]["run_id"]
    frames = stack.loomlog("runs", "show", run_id, "--json").json["frames"]
    windows = {frame["event"]["usage"].get("max_context_tokens") for frame in frames if frame["type"] == "usage"}
    assert windows == {WINDOW}
