"""Parking, releasing and ordering about many runs, as an operator does it, against a stack that runs."""

import pytest

from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack


def started(stack: Installation) -> str:
    """The id of a run whose model call takes two minutes."""
    found: dict[str, str] = stack.loomlog("run", "sleeper", "Hello", "--no-follow", "--json").json
    return found["run_id"]


def row(stack: Installation, run_id: str) -> dict[str, object]:
    found: dict[str, object] = stack.loomlog("runs", "show", run_id, "--json").json["run"]
    return found


def event(stack: Installation, position: str) -> dict[str, object]:
    """The record a command says that it wrote."""
    found: dict[str, object] = stack.loomlog("events", "get", position, "--json").json
    return found


def test_a_run_is_quarantined_and_released_and_each_order_names_its_event(stack: Installation) -> None:
    run_id = started(stack)
    parked = stack.loomlog("runs", "quarantine", run_id, "--reason", "sends mails", "--json").json
    assert event(stack, parked["position"])["type"] == "RunQuarantined"
    assert (row(stack, run_id)["quarantined"], row(stack, run_id)["quarantine_error"]) == (True, "sends mails")
    again = stack.loomlog("runs", "quarantine", run_id, "--reason", "x", code=1)
    assert "quarantined already: sends mails" in again.err
    assert "completed" in stack.loomlog("run", "assistant", "Hello").out, "others flow"
    released = stack.loomlog("runs", "release", run_id, "--reason", "mended", "--json").json
    assert event(stack, released["position"])["type"] == "RunReleased"
    assert row(stack, run_id)["quarantined"] is False
    assert "is not quarantined" in stack.loomlog("runs", "release", run_id, code=1).err
    stack.loomlog("runs", "cancel", run_id, "--reason", "the test is over")
    assert stack.loomlog("replay", run_id, "--json").json["drift"] == []
    assert "has ended" in stack.loomlog("runs", "release", run_id, code=4).err
    stack.loomlog("runs", "release", "r_nothing", code=4)


def test_an_order_to_many_is_previewed_done_and_told_run_by_run(stack: Installation) -> None:
    runs = {started(stack) for _ in range(3)}
    where = "agent=sleeper,status=running"
    preview = stack.loomlog("runs", "quarantine", "--where", where, "--dry-run", "--reason", "x", "--json").json
    assert {one["run_id"] for one in preview["runs"]} == runs
    assert stack.loomlog("runs", "quarantine", "--where", where, "--reason", "x", code=2).err, "nobody to ask"
    done = stack.loomlog("runs", "quarantine", "--where", where, "--reason", "abuse", "--yes", "--json").json
    assert {one["run_id"]: one["outcome"] for one in done["results"]} == dict.fromkeys(runs, "changed")
    assert {event(stack, one["position"])["type"] for one in done["results"]} == {"RunQuarantined"}
    shown = stack.loomlog("runs", "cancel", "--where", "status=quarantined", "--reason", "the test is over", "--yes")
    assert "3 changed, 0 unchanged, 0 failed" in shown.out
    assert "did you mean agent?" in stack.loomlog("runs", "pause", "--where", "agnet=x", "--dry-run", code=1).err
