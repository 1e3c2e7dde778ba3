"""The past of a run through the command line: taken out, replayed with nothing running, forked, compared."""

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def own(second_stack: Installation) -> Installation:
    return second_stack


def events_of(stack: Installation, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.loomlog("replay", run_id, "--json").json["events"]
    return found


def test_a_run_is_shown_forked_compared_exported_and_replayed_without_a_broker(own: Installation) -> None:
    own.loomlog("review")
    run_id = own.loomlog("runs", "ls", "--agent", "reviewer", "--json").json["runs"][0]["run_id"]
    events = events_of(own, run_id)
    last = len(events)
    # As it was: after the first turn's intent nothing had been answered.
    early = own.loomlog("runs", "show", run_id, "--at", "2", "--json").json
    assert (early["at"], early["phase"], early["turns"], early["status"]) == (2, "awaiting_model", 0, "running")
    assert own.loomlog("replay", run_id, "--to", "2", "--json").json["state_sha256"] == early["state_sha256"]

    # In the middle of a turn's calls nothing can be shared; after the last of its results it can, without a word.
    asked = next(event["seq"] for event in events if event["type"] == "ToolCallRequested")
    refused = own.loomlog("runs", "fork", run_id, "--at", str(asked), code=1)
    assert "no result yet" in refused.err
    due = [event["seq"] for event in events if event["type"] == "ModelCallRequested"][1]
    fork = own.loomlog("runs", "fork", run_id, "--at", str(due), "--no-follow", "--json").json
    own.loomlog("runs", "follow", fork["run_id"])
    calls = [event for event in events_of(own, fork["run_id"]) if event["type"] == "ToolCallRequested"]
    shared = [event for event in events if event["type"] == "ToolCallRequested" and event["seq"] < due]
    assert len(calls) == len([event for event in events if event["type"] == "ToolCallRequested"]) - len(shared)
    proven = own.loomlog("replay", fork["run_id"], "--json").json
    assert (proven["drift"], proven["compared"], proven["continues"], proven["status"]) == ([], True, 1, "completed")
    assert own.loomlog("runs", "show", fork["run_id"], "--json").json["run"]["forked_from"] == {
        "run_id": run_id,
        "seq": due,
    }

    # A fork of the fork's end, by another definition; a field nobody knows names the nearest.
    wrong = own.loomlog("runs", "fork", fork["run_id"], "--at", "1", "--set", "modle=x", code=1)
    assert "did you mean model?" in wrong.err
    seq = str(proven["seq"])
    further = own.loomlog(
        "runs", "fork", fork["run_id"], "--at", seq, "--prompt", "Once more.", "--set", "max_tokens=77", "--json"
    ).lines[-1]["data"]
    assert further["status"] in ("completed", "failed")
    two = own.loomlog("runs", "diff", fork["run_id"], further["run_id"], "--json").json
    assert {one["name"] for one in two["definition"]} == {"max_tokens", "sha256"}
    assert two["first"]["differs"] == ["only in one"]
    assert "only in one" in own.loomlog("runs", "diff", fork["run_id"], further["run_id"]).out
    session = own.loomlog("run", "assistant", "And you?", "--session", further["session_id"], "--json").lines[-1][
        "data"
    ]
    assert own.loomlog("replay", session["run_id"], "--json").json["continues"] == 3

    # Out it goes, with its ancestors, and is proven while nothing runs.
    file = own.folder / "run.gz"
    exported = own.loomlog("runs", "export", session["run_id"], str(file), "--json").json
    assert (exported["runs"], exported["drift"]) == (4, [])
    own.loomlog("down")
    assert own.loomlog("replay", run_id, code=3).err != ""
    alone = own.loomlog("replay", str(file), "--json").json
    assert (alone["drift"], alone["compared"], alone["continues"]) == ([], True, 3)
    assert alone["state_sha256"] == exported["state_sha256"]
    broken = own.folder / "broken.gz"
    broken.write_bytes(file.read_bytes()[:-50])
    assert "cannot be replayed" in own.loomlog("replay", str(broken), code=1).err

    _taken_in_elsewhere(own, file, session["run_id"], fork["run_id"])

    # Up again: the forks are still what they were, folded from the log by an owner that has forgotten everything.
    own.up()
    again = own.loomlog("replay", session["run_id"], "--json").json
    assert (again["drift"], again["state_sha256"]) == ([], exported["state_sha256"])
    late = own.loomlog("runs", "fork", run_id, "--at", str(due), "--no-follow", "--json").json
    own.loomlog("runs", "follow", late["run_id"])
    same = own.loomlog("runs", "diff", fork["run_id"], late["run_id"], "--json").json
    assert same["definition"] == []
    assert last == len(events_of(own, run_id))


def _taken_in_elsewhere(own: Installation, file: Path, run_id: str, fork_id: str) -> None:
    """Another installation, which has nothing yet, takes the file in: once, whatever is asked twice."""
    other = Installation(own.folder / "other")
    other.make()
    try:
        other.up()
        first = other.loomlog("runs", "import", str(file), "--json").json
        assert [run["imported"] for run in first["runs"]] == [True] * 4
        again = other.loomlog("runs", "import", str(file), "--json").json
        assert [run["imported"] for run in again["runs"]] == [False] * 4
        assert again["position"] == first["position"]
        other.loomlog("projections", "rebuild")
        proven = other.loomlog("replay", run_id, "--json").json
        assert (proven["drift"], proven["compared"], proven["continues"]) == ([], True, 3)
        assert "imported    from loom.run.events/" in other.loomlog("runs", "show", run_id).out
        then = own.loomlog("replay", str(file), "--json").json
        assert [event["at"] for event in proven["events"]] == [event["at"] for event in then["events"]]
        # It goes on here: as a fork, and as the session it was.
        other.loomlog("runs", "fork", run_id, "--at", str(proven["seq"]), "--prompt", "And here?")
        row = other.loomlog("runs", "show", run_id, "--json").json["run"]
        further = other.loomlog("run", "assistant", "Hello again", "--session", row["session_id"], "--json").lines[-1]
        assert other.loomlog("replay", further["data"]["run_id"], "--json").json["continues"] == 4
        bundle = other.folder / "back.gz"
        assert other.loomlog("runs", "export", fork_id, str(bundle), "--json").json["drift"] == []
        assert other.loomlog("replay", str(bundle), "--json").json["drift"] == []
    finally:
        other.loomlog("down")
