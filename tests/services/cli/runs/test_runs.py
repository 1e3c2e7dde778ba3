import json
from pathlib import Path

import pytest

from loomlog.services.cli.runs import runs
from tests.services.cli.fake_api import IDS, POSITION, FakeApi, Scripted, frame, frames, invoke, refused, row

DONE = frame("done", {"type": "done", "stop_reason": "end_turn"}, 1024)


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    fake.rows["r_1"] = row()
    return fake


def test_a_run_that_completes_ends_with_0_and_shows_its_position(fake):
    fake.streams.append(frames(DONE))
    result = invoke("run", "assistant", "Hello")
    assert result.exit_code == 0, result.output
    assert f"run r_1  session s_1  event {POSITION}" in result.stdout
    assert "completed (end_turn)" in result.stdout
    assert fake.bodies("/v1/runs") == [{"agent": "assistant", "prompt": "Hello"}]
    assert fake.asked[0].url.params["ids"] == "1"
    assert len(fake.asked[0].headers["idempotency-key"]) == 36


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_run_that_does_not_complete_ends_with_1(fake, status):
    fake.streams.append(frames(frame("error", {"type": "error", "error": "mock 400: no"}, 1024)))
    fake.rows["r_1"] = row(status=status)
    assert invoke("run", "assistant", "Hello").exit_code == 1


def test_as_json_there_are_lines_of_json_and_nothing_else(fake):
    fake.streams.append(frames(DONE))
    result = invoke("run", "assistant", "Hello", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["session", "agent", "done", "run"]
    assert lines[2]["id"] == 1024
    assert lines[-1]["data"] == row()
    assert result.stderr == ""


def test_without_following_the_ids_and_the_position_are_the_answer(fake):
    fake.streams.append(frames(frame("text", {"text": "never read"})))
    result = invoke("run", "assistant", "Hello", "--no-follow", "--idempotency-key", "mine", "--json")
    assert json.loads(result.stdout) == {**IDS, "position": POSITION, "idempotency_key": "mine"}
    assert fake.asked[0].headers["idempotency-key"] == "mine"


def test_a_session_is_gone_on_with_over_its_own_route(fake):
    fake.streams.append(frames(DONE))
    assert invoke("run", "assistant", "And then?", "--session", "s_1").exit_code == 0
    assert fake.bodies("/v1/sessions/s_1/messages") == [{"agent": "assistant", "prompt": "And then?"}]


def test_a_run_is_started_with_the_schema_in_a_file(fake: FakeApi, tmp_path: Path) -> None:
    fake.streams.append(frames(DONE))
    path = tmp_path / "schema.json"
    path.write_text('{"type": "object"}')
    assert invoke("run", "assistant", "Hello", "--output-schema", str(path)).exit_code == 0
    assert fake.bodies("/v1/runs")[0]["output_schema"] == {"type": "object"}
    path.write_text("{")
    assert "expected a file with a JSON Schema" in " ".join(
        invoke("run", "assistant", "Hello", "--output-schema", str(path)).output.split()
    )


def test_hooks_for_its_end_are_json(fake):
    fake.streams.append(frames(DONE))
    hook = {"kind": "channel.publish", "channel": "done"}
    assert invoke("run", "assistant", "Hello", "--on-complete", json.dumps(hook)).exit_code == 0
    assert fake.bodies("/v1/runs")[0]["on_complete"] == [hook]
    assert "expected JSON" in invoke("run", "assistant", "Hello", "--on-complete", "{").output
    assert "has no hooks" in invoke("run", "assistant", "Hi", "--session", "s_1", "--on-complete", "{}").output


def test_a_prompt_may_come_from_a_pipe(fake):
    fake.streams.append(frames(DONE))
    assert invoke("run", "assistant", "-", stdin="a long text\n").exit_code == 0
    assert fake.bodies("/v1/runs")[0]["prompt"] == "a long text\n"
    assert invoke("run", "assistant", "-", stdin="  \n").exit_code == 2


@pytest.mark.parametrize("more", [(), ("--no-follow",)])
def test_a_start_while_everything_is_paused_is_refused_at_once(fake, more):
    fake.streams.append(refused(503, "runtime_paused", "all is paused: deploy; runs start again when it is resumed"))
    result = invoke("run", "assistant", "Hello", *more)
    said = "All is paused: deploy; runs start again when it is resumed.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", said)


def test_without_following_what_is_waited_for_is_said_beside_the_answer(fake):
    fake.streams += [refused(503, "run_pending", "no runtime has taken it up yet", **IDS), frames(DONE)]
    result = invoke("run", "assistant", "Hello", "--no-follow", "--json")
    assert json.loads(result.stdout)["run_id"] == "r_1"
    assert result.stderr == "No runtime has taken it up yet.\n"


def test_a_wrong_use_is_2():
    assert invoke("runs", "ls", "--limit", "many").exit_code == 2
    assert invoke("runs", "quarantine", "r_1").exit_code == 2, "a quarantine needs its reason"
    assert invoke("nonsense").exit_code == 2


def test_the_list_passes_its_filters_on(fake):
    fake.answers["GET", "/v1/runs"] = Scripted(body={"runs": [row()], "next": "abc"})
    result = invoke("runs", "ls", "--status", "failed", "--agent", "writer", "--since", "2026-01-01", "--limit", "7")
    assert dict(fake.asked[0].url.params) == {
        "status": "failed",
        "agent": "writer",
        "from": "2026-01-01T00:00:00.000Z",
        "limit": "7",
    }
    assert "r_1" in result.stdout
    assert "--cursor abc" in result.stdout
    result = invoke("runs", "ls", "--json")
    assert json.loads(result.stdout) == {"runs": [row()], "next": "abc"}


def test_an_empty_list_says_how_to_fill_it(fake):
    fake.answers["GET", "/v1/runs"] = Scripted(body={"runs": [], "next": None})
    assert "No runs." in invoke("runs", "ls").stdout


def stored(kind, seq, **event):
    """A frame of a transcript, as many milliseconds after the epoch as its seq."""
    return {"seq": seq, "ts_ns": seq * 1_000_000, "run_id": "r_1", "type": kind, "event": {"type": kind, **event}}


def test_show_tells_what_was_said_and_done_page_by_page(fake):
    transcript = "/v1/sessions/s_1/transcript"

    def page(request):
        is_first = "cursor" not in request.url.params
        user = {"role": "user", "content": [{"type": "trusted-text", "text": "Hello"}]}
        first = stored("user_input", 256) | {"payload": [user]}
        other = stored("text", 257, text="another run's") | {"run_id": "r_0"}
        last = stored("text", 513, text="Hi!")
        done = stored("done", 1024, stop_reason="end_turn")
        return {"events": [first, other], "next": "p2"} if is_first else {"events": [last, done], "next": None}

    fake.pages[transcript] = page
    result = invoke("runs", "show", "r_1")
    assert result.exit_code == 0, result.output
    lines = [line[46:] for line in result.stdout.splitlines()]
    at = lines.index("> Hello")
    assert lines[at : at + 3] == ["> Hello", "turn 1", "  Hi!"]
    assert "another run's" not in result.stdout
    found = json.loads(invoke("runs", "show", "r_1", "--json").stdout)
    assert [frame["seq"] for frame in found["frames"]] == [256, 513, 1024]
    assert found["run"] == row()


@pytest.mark.parametrize(
    ("state", "is_shown"),
    [
        ({"status": "running"}, True),
        ({"status": "running", "under_way": ["1"]}, True),
        ({"status": "running", "under_way": ["0"]}, False),  # it was resolved as not done, and is made again
        ({"status": "failed"}, False),
        ({"status": "running", "quarantined": True}, False),
    ],
)
def test_show_says_how_a_call_is_settled_only_while_somebody_can(fake, state, is_shown):
    asked = {"type": "outcome_unknown", "outcome_unknown": {"call": "1.0", "id": "c1", "name": "Pay"}}
    frame = {"seq": 513, "ts_ns": 513_000_000, "run_id": "r_1", "type": "outcome_unknown", "event": asked}
    fake.pages["/v1/sessions/s_1/transcript"] = lambda request: {"events": [frame], "next": None}
    fake.rows["r_1"] = row(**state)
    shown = invoke("runs", "show", "r_1").stdout
    assert "the outcome of call 1.0 (Pay) is unknown" in shown
    assert ("loomlog runs resolve r_1 --call 1.0 --as done|not-done" in shown) == is_shown


def test_a_handle_is_as_good_as_an_id(fake):
    fake.rows["a_1"] = row()
    fake.streams.append(frames(DONE, started=False))
    assert invoke("runs", "follow", "a_1").exit_code == 0
    assert fake.asked[0].url.path == "/v1/agents/a_1"


def test_a_run_that_does_not_exist_is_said_with_where_to_look(fake):
    result = invoke("runs", "show", "r_9")
    assert (result.exit_code, result.stderr) == (4, "There is no run r_9. `loomlog runs ls` lists them.\n")


def test_a_cancel_shows_the_position_of_its_event(fake):
    answer = {"cancelled": True, "agent_id": "a_1", "run_id": "r_1", "status": "cancelled", "reason": "enough"}
    fake.answers["POST", "/v1/agents/a_1/cancel"] = Scripted(
        body=answer, headers={"X-Loomlog-Position": "loom.run.events/2:21"}
    )
    result = invoke("runs", "cancel", "r_1", "--reason", "enough")
    assert (result.exit_code, result.stdout) == (0, "Cancelled r_1  event loom.run.events/2:21\n")
    assert fake.bodies("/v1/agents/a_1/cancel") == [{"run_id": "r_1", "reason": "enough"}]
    result = invoke("runs", "cancel", "r_1", "--reason", "enough", "--json")
    assert json.loads(result.stdout) == {**answer, "position": "loom.run.events/2:21"}


def test_cancelling_what_has_ended_otherwise_is_1(fake):
    answer = {"cancelled": False, "agent_id": "a_1", "run_id": "r_1", "status": "completed", "reason": "end_turn"}
    fake.answers["POST", "/v1/agents/a_1/cancel"] = Scripted(body=answer)
    result = invoke("runs", "cancel", "r_1", "--reason", "late")
    assert (result.exit_code, result.stderr) == (1, "r_1 had ended before: completed (end_turn).\n")


@pytest.mark.parametrize(
    ("word", "body", "what"), [("done", "done", "is done"), ("not-done", "not_done", "is made again")]
)
def test_a_call_is_resolved_in_the_words_of_the_operator(fake, word, body, what):
    answer = {"run_id": "r_1", "call": "1.0", "repeated": word == "not-done"}
    fake.answers["POST", "/v1/runs/r_1/calls/1.0/resolve"] = Scripted(
        body=answer, headers={"X-Loomlog-Position": "loom.run.events/2:21"}
    )
    result = invoke("runs", "resolve", "r_1", "--call", "1.0", "--as", word)
    assert (result.exit_code, result.stdout) == (0, f"Call 1.0 of r_1 {what}  loom.run.events/2:21\n")
    assert fake.bodies("/v1/runs/r_1/calls/1.0/resolve") == [{"outcome": body}]
    result = invoke("runs", "resolve", "r_1", "--call", "1.0", "--as", word, "--json")
    assert json.loads(result.stdout) == {**answer, "position": "loom.run.events/2:21"}


@pytest.mark.parametrize(
    ("applied", "said"),
    [
        ("live", "Compacted r_1: 81.0k tokens became 12.0k  event loom.run.events/2:21\n"),
        (
            "marker",
            "Compacted r_1: 81.0k tokens became 12.0k  event loom.run.events/2:21\n"
            "The next run of its session starts from the summary.\n",
        ),
        ("noop", "Nothing to compact in r_1\n"),
    ],
)
def test_compacting_says_what_became_of_the_conversation(fake, applied, said):
    answer = {
        "run_id": "r_1",
        "compacted": applied != "noop",
        "before_tokens": 81_000,
        "after_tokens": 12_000,
        "applied": applied,
    }
    path = "/v1/runs/r_1/compact"
    fake.answers["POST", path] = Scripted(body=answer, headers={"X-Loomlog-Position": "loom.run.events/2:21"})
    result = invoke("runs", "compact", "r_1", "--reason", "tidy")
    assert (result.exit_code, result.stdout) == (0, said)
    assert fake.bodies(path) == [{"reason": "tidy"}]
    result = invoke("runs", "compact", "r_1", "--json")
    assert json.loads(result.stdout) == {**answer, "position": "loom.run.events/2:21"}


def test_a_place_that_is_none_is_said_before_anything_is_asked(fake):
    assert invoke("runs", "resolve", "r_1", "--call", "../x", "--as", "done").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "body", "said"),
    [
        (("pause", "r_1", "--reason", "look"), {"reason": "look"}, "Pausing"),
        (("resume", "r_1"), {}, "Resumed"),
        (("quarantine", "r_1", "--reason", "look"), {"reason": "look"}, "Quarantined"),
        (("release", "r_1", "--reason", "mended"), {"reason": "mended"}, "Released"),
    ],
)
def test_orders_to_a_run_show_the_position_of_the_event(fake, arguments, body, said):
    path = f"/v1/runs/r_1/{arguments[0]}"
    answer = {"run_id": "r_1", "agent_id": "a_1"}
    fake.answers["POST", path] = Scripted(body=answer, headers={"X-Loomlog-Position": "loom.run.events/2:21"})
    result = invoke("runs", *arguments)
    assert (result.exit_code, result.stdout) == (0, f"{said} r_1  event loom.run.events/2:21\n")
    assert fake.bodies(path) == [body]
    result = invoke("runs", *arguments, "--json")
    assert json.loads(result.stdout) == {**answer, "position": "loom.run.events/2:21"}


ORIGIN = "r_24zns3xqfgtkxq24k8v1r1g2p5"
FORK = f"{ORIGIN}-0p6075tbcqfe5h4jvkqzw353bv"
OTHER = "r_24zns9zzzzzzzzzzzzzzzzzzzz"


def matching(fake, *known):
    """The fake lists the runs whose id has the prefix, part by part."""

    def page(request):
        parts = request.url.params["prefix"].split("-")
        return {
            "runs": [
                row(one, agent_id=one.replace("r_", "a_"))
                for one in known
                if all(of.startswith(part) for part, of in zip(parts, one.split("-"), strict=False))
                and len(parts) <= len(one.split("-"))
            ],
            "next": None,
        }

    fake.pages["/v1/runs"] = page


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        ("r_24zns3xq", ORIGIN),  # of a run and its fork it is the run
        ("24zns3xq", ORIGIN),
        (FORK[:12], ORIGIN),
        ("r_24zns3xqfgtk-0p60", FORK),
        (ORIGIN, ORIGIN),
        ("r_unknown", "r_unknown"),
        ("a b", "a b"),
    ],
)
def test_an_id_is_known_by_the_start_of_its_parts(fake, text, run_id):
    matching(fake, FORK, ORIGIN, OTHER)
    assert runs.resolve_run_id(text) == run_id


def test_the_start_of_several_runs_is_refused_with_their_ids(fake):
    matching(fake, FORK, ORIGIN, OTHER)
    result = invoke("runs", "cancel", "r_24zns")
    assert result.exit_code == 2
    assert ORIGIN in result.stderr
    assert OTHER in result.stderr


def test_the_list_has_short_ids_unless_they_are_wanted_whole(fake):
    fake.answers["GET", "/v1/runs"] = Scripted(body={"runs": [row(FORK)], "next": None})
    assert "r_24zns3xqfgtk-0p6075tbcqfe " in invoke("runs", "ls").stdout
    assert FORK in invoke("runs", "ls", "--wide").stdout


def test_a_fork_numbers_its_turns_by_the_conversation(fake):
    fake.rows["r_1"] = row(forked_from={"run_id": ORIGIN, "seq": 9})
    fake.answers["GET", f"/v1/runs/{ORIGIN}/state"] = Scripted(body={"turns": 2})
    fake.pages["/v1/sessions/s_1/transcript"] = lambda _: {"events": [stored("text", 513, text="Hi!")], "next": None}
    assert "turn 3" in invoke("runs", "show", "r_1").stdout


def test_positions_of_earlier_writes_go_with_reads_and_starts(fake):
    position = "loom.entity.events/0:7,loom.run.events/2:17"
    fake.answers["GET", "/v1/runs"] = Scripted(body={"runs": [], "next": None})
    fake.pages["/v1/sessions/s_1/transcript"] = lambda _: {"events": [], "next": None}
    assert invoke("runs", "ls", "--position", position).exit_code == 0
    assert invoke("runs", "show", "r_1", "--position", position).exit_code == 0
    fake.streams.append(frames(DONE))
    assert invoke("run", "assistant", "Hello", "--position", position).exit_code == 0
    listing, shown, started = (
        next(one for one in fake.asked if (one.method, one.url.path) == asked)
        for asked in (("GET", "/v1/runs"), ("GET", "/v1/runs/r_1"), ("POST", "/v1/runs"))
    )
    assert listing.url.params["position"] == position
    assert [one.headers["x-loomlog-position"] for one in (shown, started)] == [position] * 2
