"""Every command against a stack that runs: what it shows, how it ends, and that programs can read it."""

import json
import signal
import subprocess

import pytest

from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack


def run_of(stack: Installation, agent: str = "assistant", *more: str) -> dict[str, str]:
    found: dict[str, str] = stack.loomlog("run", agent, "Hello", "--no-follow", "--json", *more).json
    return found


def test_a_run_is_followed_to_its_end(stack: Installation) -> None:
    shown = stack.loomlog("run", "assistant", "Hello").out
    assert "turn 1\n  This is the synthetic model" in shown
    assert "completed (end_turn)" in shown
    frames = stack.loomlog("run", "assistant", "Hello", "--json").lines
    assert [frame["event"] for frame in frames][-2:] == ["done", "run"]
    assert frames[-1]["data"]["status"] == "completed"


def test_a_run_that_fails_ends_with_1(stack: Installation) -> None:
    assert "failed" in stack.loomlog("run", "unlucky", "Hello", code=1).out


def test_an_unknown_agent_is_a_sentence(stack: Installation) -> None:
    refused = stack.loomlog("run", "nobody", "Hello", code=4)
    assert "Unknown agent nobody; agents: analyst, assistant, " in refused.err
    assert refused.out == ""


def test_the_same_key_gives_the_same_run(stack: Installation) -> None:
    first = run_of(stack, "assistant", "--idempotency-key", "once")
    second = run_of(stack, "assistant", "--idempotency-key", "once")
    assert second == first
    again = stack.loomlog("run", "assistant", "Something else", "--idempotency-key", "once", code=1)
    assert first["run_id"] in again.err


def test_a_session_goes_on_and_replays_with_what_was_said_before(stack: Installation) -> None:
    first = run_of(stack)
    stack.loomlog("runs", "follow", first["run_id"])
    stack.loomlog("run", "assistant", "And then?", "--session", first["session_id"])
    newest = stack.loomlog("runs", "ls", "--session", first["session_id"], "--json").json["runs"][0]
    assert newest["continues_run_id"] == first["run_id"]
    assert stack.loomlog("replay", newest["run_id"], "--json").json["continues"] == 1


def test_a_cancel_ends_a_run_and_tells_where_that_stands_in_the_log(stack: Installation) -> None:
    started = run_of(stack, "sleeper")
    cancelled = stack.loomlog("runs", "cancel", started["run_id"], "--reason", "enough of it", "--json").json
    assert cancelled["cancelled"] is True
    record = stack.loomlog("events", "get", cancelled["position"], "--json").json
    assert (record["type"], record["payload"]["reason"]) == ("RunCancelled", "enough of it")
    assert record["run_id"] == started["run_id"]
    assert "cancelled (enough of it)" in stack.loomlog("runs", "follow", started["run_id"], code=1).out
    assert stack.loomlog("replay", started["run_id"], "--json").json["status"] == "cancelled"


def test_whoever_stops_following_does_not_stop_the_run(stack: Installation) -> None:
    follower = subprocess.Popen(
        stack.command("run", "sleeper", "Hello", "--json"),
        cwd=stack.project,
        env=stack.environ | {"PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    frame = json.loads(follower.stdout.readline())
    while frame["event"] != "agent":
        frame = json.loads(follower.stdout.readline())
    follower.send_signal(signal.SIGINT)
    try:
        _, said = follower.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        follower.send_signal(signal.SIGABRT)  # says where it was
        raise AssertionError(follower.communicate()[1]) from None
    assert follower.returncode == 130
    assert "the run continues" in said
    run_id = frame["data"]["run_id"]
    assert stack.loomlog("runs", "show", run_id, "--json").json["run"]["status"] == "running"
    stack.loomlog("runs", "cancel", run_id, "--reason", "the test is over")


def test_a_run_is_listed_shown_replayed_and_tailed(stack: Installation, reviewed: str) -> None:
    listed = stack.loomlog("runs", "ls", "--agent", "reviewer", "--status", "completed").out
    assert reviewed[:13] in listed
    assert reviewed in stack.loomlog("runs", "ls", "--agent", "reviewer", "--wide").out
    shown = stack.loomlog("runs", "show", reviewed).out
    assert "reviewer (mock/mock-reviewer)" in shown
    assert "> Review the files" in shown
    replayed = stack.loomlog("replay", reviewed, "--json").json
    assert (replayed["status"], replayed["drift"], replayed["compared"]) == ("completed", [], True)
    tailed = stack.loomlog("events", "tail", "--run", reviewed, "--json").lines
    assert [record["seq"] for record in tailed] == list(range(1, replayed["seq"] + 1))
    assert [record["type"] for record in tailed] == [event["type"] for event in replayed["events"]]
    assert {record["kind"] for record in tailed} == {"legal"}
    assert "matches the read models" in stack.loomlog("replay", reviewed, "--no-timeline").out


def test_the_same_record_comes_from_the_api_and_from_the_broker(stack: Installation, reviewed: str) -> None:
    position = stack.loomlog("runs", "show", reviewed, "--json").json["run"]["position"]
    served = stack.loomlog("events", "get", position, "--json").json
    direct = stack.loomlog("events", "get", position, "--json", "--direct").json
    assert served["type"] == "RunCompleted"
    for name in ("position", "term", "seq", "run_id", "type", "at", "stale", "payload"):
        assert direct[name] == served[name], name


def test_other_topics_can_be_looked_at(stack: Installation, reviewed: str) -> None:
    commands = stack.loomlog(
        "events", "tail", "--topic", "run.commands", "--run", reviewed, "--from", "beginning", "--no-follow", "--json"
    ).lines
    assert [record["type"] for record in commands] == ["StartRun"]
    stack.loomlog("events", "get", "loom.dead-letter/0/0", code=4)


def test_the_read_models_are_told_and_rebuilt_equal(stack: Installation, reviewed: str) -> None:
    lag = stack.loomlog("projections", "lag", "--json").json
    assert (len(lag["partitions"]), lag["problems"]) == (4, 0)
    assert stack.loomlog("projections", "problems", "--json").json == {"count": 0, "problems": []}
    rebuilt = stack.loomlog("projections", "rebuild", "--json").json
    assert (rebuilt["switched"], rebuilt["equal"]) == (True, True)
    assert rebuilt["events"] > 20
    entities = stack.loomlog("projections", "rebuild", "--topic", "entities", "--json").json
    assert (entities["switched"], entities["equal"]) == (True, True)
    channels = stack.loomlog("projections", "rebuild", "--topic", "channels", "--json").json
    assert (channels["switched"], channels["equal"]) == (True, True)
    models = stack.loomlog("projections", "ls", "--json").json["models"]
    assert [(model["name"], model["build"], model["state"]) for model in models] == [
        ("runs", rebuilt["build"], "projecting"),
        ("entities", entities["build"], "projecting"),
        ("channels", channels["build"], "projecting"),
    ]
    assert reviewed in stack.loomlog("runs", "ls", "--limit", "100", "--wide").out


def test_the_topics_are_as_they_should_be(stack: Installation) -> None:
    assert stack.loomlog("topics", "apply", "--check", "--json").json["changes"] == []


def test_the_status_tells_of_every_process(stack: Installation) -> None:
    found = stack.loomlog("status", "--json").json
    assert [child["name"] for child in found["children"]] == [
        "kafka",
        "postgres",
        "runtime",
        "projector",
        "api",
        "runtime-2",
        "insights",
    ]
    roles = {child["role"]: child["partitions"] for child in found["children"] if child["role"]}
    assert roles == {"owner": 4, "spare": 4}
    assert {child["state"] for child in found["children"]} == {"ready"}
    assert found["api"]["ready"] is True
    assert found["volumes"]["source"] == str(stack.project)
    assert "windows" in found["insights"]
    assert "The stack runs in" in stack.loomlog("status").out


def test_the_doctor_finds_nothing_wrong(stack: Installation) -> None:
    found = stack.loomlog("doctor", "--json").json
    assert found["ok"] is True, found


def test_a_second_stack_in_the_same_folder_is_refused(stack: Installation) -> None:
    assert "is running" in stack.loomlog("up", code=1).err
