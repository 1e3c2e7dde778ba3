import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from loomlog.schemas.generated.values import Compaction
from loomlog.services.api.routes import ROUTES
from loomlog.services.core.run.state import Ended
from tests.services.api.serving import Served, Wire, frames_of, served
from tests.services.application.world import GLOBEX, IVY, until

USER_TEXT = [{"role": "user", "content": [{"type": "trusted-text", "text": "hello"}]}]


def post_run(here: Served, body: str = '{"agent":"silent","prompt":"go"}', query: str = "", **more: Any) -> Wire:
    return Wire(here.app, "POST", f"/v1/runs{query}", body=body.encode(), **more).begin()


# --- start -----------------------------------------------------------------------------------------------------------


async def test_a_run_answers_with_an_unbuffered_stream_in_the_known_order(here: Served) -> None:
    answer = await here.client().post("/v1/runs", json={"agent": "soaker", "segments": USER_TEXT})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["connection"] == "keep-alive"
    assert answer.headers["x-accel-buffering"] == "no"
    frames = frames_of(answer.text)
    assert [frame.event for frame in frames] == ["session", "agent", "started", "text", "usage", "done"]
    assert all(frame.data["type"] == frame.event for frame in frames if frame.event != "agent")
    assert frames[0].data["text"] == frames[1].data["session_id"]
    assert frames[1].data["parent_agent_id"] is None
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")


async def test_frames_of_a_start_carry_ids_only_when_asked(here: Served) -> None:
    plain = (await here.client().post("/v1/runs", json={"agent": "soaker", "prompt": "x"})).text
    assert "\nid:" not in plain
    asked = (await here.client().post("/v1/runs?ids=1", json={"agent": "soaker", "prompt": "x"})).text
    assert [frame.id is not None for frame in frames_of(asked)] == [False, False, True, True, True, True]


async def test_each_frame_is_one_line_of_json(here: Served) -> None:
    answer = await here.client().post("/v1/runs", json={"agent": "soaker", "prompt": "line\nbreak"})
    for block in answer.text.strip().split("\n\n"):
        assert [line.split(":")[0] for line in block.split("\n")] == ["event", "data"]


async def test_the_ids_come_before_anything_has_happened(here: Served) -> None:
    wire = post_run(here)
    text = await wire.until("event: agent")
    assert '"run_id":"r_' in text
    assert not wire.ended
    wire.leave()
    wire.task.cancel()  # type: ignore[union-attr]


async def test_what_happens_together_is_written_together_and_the_last_frames_close_the_answer(here: Served) -> None:
    wire = post_run(here)
    await wire.until("event: started")
    so_far = len(wire.writes)
    here.world.reply(here.world.commands()[0].run_id)
    await wire.done()
    (last,) = wire.writes[so_far:]
    assert [frame.event for frame in frames_of(last.decode())] == ["text", "usage", "done"]


async def test_a_client_that_leaves_ends_its_stream_and_never_the_run(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.api.event_stream.WATCH_AFTER_S", 0.0)
    wire = post_run(here)
    await wire.until("event: started")
    assert here.service.shares.open_streams == 1
    wire.leave()
    await wire.done()
    assert here.service.shares.open_streams == 0
    assert here.world.hub.subscribers == 0
    run_id = here.world.commands()[0].run_id
    here.world.reply(run_id)
    assert isinstance(here.world.states[run_id], Ended)
    assert len(here.world.commands()) == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prompt": "x"}, 400, "bad_request"),
        ({"agent": "soaker"}, 400, "bad_request"),
        ({"agent": "ghost", "prompt": "x"}, 400, "unknown_agent"),
        ({"agent": "soaker", "prompt": "x", "agent_id": "has space"}, 400, "bad_request"),
        ({"agent": "soaker", "prompt": "x", "session_id": "s_nothing"}, 404, "not_found"),
        ({"agent": "soaker", "prompt": "x", "user_credentials": {"bad name": "v"}}, 400, "bad_request"),
        ({"agent": "soaker", "prompt": "x", "parent_context": {"function_key": "x" * 257}}, 400, "bad_request"),
        ({"agent": "soaker", "prompt": "x", "sampling": {"temperature": "hot"}}, 400, "bad_request"),
        ({"agent": "soaker", "prompt": "x", "tools": "Read"}, 400, "bad_request"),
    ],
)
async def test_what_cannot_be_started_is_refused_before_a_stream_begins(
    here: Served, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await here.client().post("/v1/runs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert here.service.shares.open_streams == 0


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/sessions/s_1/messages", "/v1/runs/r_1/fork"])
async def test_a_body_with_a_key_twice_is_refused(here: Served, path: str) -> None:
    raw = b'{"agent": "soaker", "prompt": "a", "metadata": {"of": 1, "of": 2}}'
    answer = await here.client().post(path, content=raw, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.json()["error"] == "the body has the key 'of' twice in one object"


async def test_nulls_are_as_if_they_were_not_there(here: Served) -> None:
    body = {"agent": "soaker", "prompt": "x", "tools": None, "metadata": None, "sampling": None, "session_id": None}
    assert (await here.client().post("/v1/runs", json=body)).status_code == 200


async def test_a_pending_run_tells_its_ids_and_has_no_position_yet(tmp_path: Path) -> None:
    async with served(tmp_path, waits={"decision_s": 0.02}) as here:
        answer = await here.client().post("/v1/runs", json={"agent": "deaf", "prompt": "x"})
    actual = answer.json()
    assert (answer.status_code, actual["code"]) == (503, "run_pending")
    assert actual["run_id"].startswith("r_")
    assert ("x-loomlog-position" in answer.headers, "position" in actual) == (False, False)
    assert answer.headers["retry-after"] == "5"


# --- idempotency -----------------------------------------------------------------------------------------------------


async def test_the_same_key_gives_the_same_run_and_says_so(here: Served) -> None:
    body = {"agent": "soaker", "prompt": "x"}
    first = await here.client().post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
    again = await here.client().post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    one, two = frames_of(first.text), frames_of(again.text)
    assert one[1].data["run_id"] == two[1].data["run_id"]
    assert [f.event for f in two if f.event not in ("session", "agent", "steer")] == [
        "started",
        "text",
        "usage",
        "done",
    ]


async def test_the_key_may_be_in_the_body_and_the_header_wins(here: Served) -> None:
    body = {"agent": "soaker", "prompt": "x", "idempotency_key": "in-body"}
    one = frames_of((await here.client().post("/v1/runs", json=body)).text)
    two = frames_of((await here.client().post("/v1/runs", json=body)).text)
    other = await here.client().post("/v1/runs", json=body, headers={"Idempotency-Key": "in-header"})
    assert one[1].data == two[1].data
    assert frames_of(other.text)[1].data["run_id"] != one[1].data["run_id"]


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_of_a_run_carries_ids_and_ends_with_it(here: Served) -> None:
    run = await here.run()
    answer = await here.client().get(f"/v1/runs/{run[1].data['run_id']}/stream")
    frames = frames_of(answer.text)
    assert [frame.event for frame in frames] == ["agent", "steer", "started", "text", "usage", "done"]
    assert [int(frame.id or 0) for frame in frames[1:]] == sorted({int(frame.id or 0) for frame in frames[1:]})
    steer = frames[1].data["user_input"]
    assert (steer["text"], steer["source"]) == ("go", "replay")


@pytest.mark.parametrize("how", ["from_seq", "header"])
async def test_a_stream_goes_on_after_a_place(here: Served, how: str) -> None:
    run = await here.run()
    path = f"/v1/runs/{run[1].data['run_id']}/stream"
    whole = frames_of((await here.client().get(path)).text)
    place = whole[3].id or ""
    if how == "header":
        answer = await here.client().get(f"{path}?from_seq=0", headers={"Last-Event-ID": place})
    else:
        answer = await here.client().get(path, params={"from_seq": place})
    assert frames_of(answer.text) == [whole[0], *whole[4:]]


@pytest.mark.parametrize("odd", ["soon", "", "-1", "1.5", "9" * 50, "²"])
async def test_an_odd_place_is_the_beginning_or_the_end_and_never_an_error(here: Served, odd: str) -> None:
    run = await here.run()
    answer = await here.client().get(f"/v1/runs/{run[1].data['run_id']}/stream", params={"from_seq": odd})
    events = [frame.event for frame in frames_of(answer.text)]
    assert events == ["agent"] if odd == "9" * 50 else events[-1] == "done"


async def test_an_idle_stream_sends_comments(tmp_path: Path) -> None:
    async with served(tmp_path, keepalive_s=0.01) as here:
        wire = post_run(here)
        await wire.until(": keepalive\n\n")
        wire.task.cancel()  # type: ignore[union-attr]


async def test_a_stopping_process_says_so_to_its_streams(here: Served) -> None:
    wire = post_run(here)
    await wire.until("event: started")
    here.world.hub.stop()
    assert (await wire.done()).endswith(": ended: stopping; resume with Last-Event-ID\n\n")


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_message_continues_the_session(here: Served) -> None:
    first = await here.run()
    path = f"/v1/sessions/{first[0].data['text']}/messages"
    answer = await here.client().post(path, json={"segments": USER_TEXT, "agent_id": "next"})
    frames = frames_of(answer.text)
    assert frames[0].data["text"] == first[0].data["text"]
    assert frames[1].data["agent_id"] == "next"
    assert frames[-1].event == "done"
    assert (await here.client().post("/v1/sessions/s_nothing/messages", json={"prompt": "x"})).status_code == 404
    assert (await here.client().post(path, json={})).status_code == 400
    assert (await here.client().post(path, content=b"hi", headers={"content-type": "text/plain"})).status_code == 415


async def test_the_transcript_is_what_was_streamed(here: Served) -> None:
    run = await here.run()
    actual = (await here.client().get(f"/v1/sessions/{run[0].data['text']}/transcript")).json()
    stored = [row["event"] for row in actual["events"] if row["type"] not in ("user_input", "system_prompt")]
    assert stored == [frame.data for frame in run[2:]]
    texts = [segment["content"][0]["text"] for segment in actual["events"][0]["payload"]]
    assert texts == ["Be short.", "go"], "as the model gets it: the system prompt first"
    assert actual["session"]["id"] == run[0].data["text"]
    assert {"seq", "run_id", "ts_ns", "type", "event"} <= set(actual["events"][0])


# --- reads -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_read_by_id_and_by_handle(here: Served) -> None:
    run = await here.run(agent_id="mine")
    by_handle = (await here.client().get("/v1/agents/mine")).json()
    by_id = (await here.client().get(f"/v1/runs/{run[1].data['run_id']}")).json()
    assert by_handle == by_id
    assert (by_id["agent_id"], by_id["status"], by_id["live"]) == ("mine", "completed", False)
    answer = await here.client().get("/v1/agents/nobody")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_agent_id")


async def test_lists_filter_and_page(here: Served) -> None:
    for number in range(3):
        await here.run(user_id=f"user{number % 2}")
    client = here.client()
    assert len((await client.get("/v1/runs")).json()["runs"]) == 3
    assert len((await client.get("/v1/runs?user_id=user0")).json()["runs"]) == 2
    assert (await client.get("/v1/runs?status=running,failed")).json()["runs"] == []
    assert len((await client.get("/v1/runs?agent=soaker&from=2000-01-01&to=2100-01-01T00:00:00Z")).json()["runs"]) == 3
    page = (await client.get("/v1/runs?limit=2")).json()
    rest = (await client.get("/v1/runs", params={"limit": 2, "cursor": page["next"]})).json()
    assert len(page["runs"]) + len(rest["runs"]) == 3
    assert rest["next"] is None


async def test_runs_are_counted_by_status_for_the_filters_of_the_list(here: Served) -> None:
    for user in ("ann", "bob", "bob"):
        await here.run(user_id=user)
    live = post_run(here, '{"agent":"silent","prompt":"go","user_id":"bob"}')
    await live.until("event: started")
    client = here.client()
    assert (await client.get("/v1/runs/counts")).json() == {
        "running": 1,
        "completed": 3,
        "failed": 0,
        "cancelled": 0,
        "waiting": {"awaiting_input": 0, "interrupted": 0, "pause_requested": 0, "quarantined": 0},
        "is_exact": True,
        "is_live_exact": True,
        "counted_max": 10_000,
    }
    of_ann = (await client.get("/v1/runs/counts?user_id=ann&from=2000-01-01")).json()
    assert (of_ann["running"], of_ann["completed"]) == (0, 1)
    assert (await here.client(GLOBEX).get("/v1/runs/counts")).json()["completed"] == 0
    assert (await here.client(IVY).get("/v1/runs/counts?user_id=bob")).json()["completed"] == 0
    answer = await client.get("/v1/runs/counts?status=failed")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    live.task.cancel()  # type: ignore[union-attr]


async def test_runs_are_listed_by_what_they_wait_for(here: Served) -> None:
    client = here.client()
    body = {"spawns": [{"agent": "parker", "prompt": "go", "interactive": True}]}
    run_id = (await client.post("/v1/runs:batch", json=body)).json()["results"][0]["run_id"]
    rows = (await client.get("/v1/runs?waiting=awaiting_input")).json()["runs"]
    assert [row["run_id"] for row in rows] == [run_id]
    assert (await client.get("/v1/runs?waiting=interrupted")).json()["runs"] == []
    assert (await client.get("/v1/runs?waiting=awaiting_input&status=completed")).json()["runs"] == []
    answer = await client.get("/v1/runs?waiting=tea")
    assert answer.status_code == 400
    assert "awaiting_input, interrupted, pause_requested, quarantined" in answer.json()["error"]


async def test_forks_are_listed_by_their_origin(here: Served) -> None:
    run_id = (await here.run())[1].data["run_id"]
    answer = await here.client().post(f"/v1/runs/{run_id}/fork", json={"at": 1})
    fork_id = frames_of(answer.text)[1].data["run_id"]
    client = here.client()
    for query in (f"forked_from={run_id}", f"forked_from_root={run_id}"):
        rows = (await client.get(f"/v1/runs?{query}")).json()["runs"]
        assert [(row["run_id"], row["forked_from"]["run_id"]) for row in rows] == [(fork_id, run_id)]
    assert (await client.get(f"/v1/runs?forked_from={fork_id}")).json()["runs"] == []


async def test_all_visible_runs_are_watched(here: Served) -> None:
    wire = Wire(here.app, "GET", "/v1/runs/stream?status=running,completed&agent=soaker").begin()
    await wire.until("event: stream_open")
    await here.run(user_id="ann")
    text = await wire.until('"status":"completed"')
    opened, started, ended = frames_of(text)
    assert opened.data["filter_status"] == ["completed", "running"]
    assert [(one.event, one.id, one.data["user_id"]) for one in (started, ended)] == [("run_state", None, "ann")] * 2
    assert here.service.shares.open_streams == 1
    wire.leave()
    wire.task.cancel()  # type: ignore[union-attr]


@pytest.mark.parametrize("query", ["status=asleep", "agent=..", "user_id=a%00b", "prefix=r_"])
async def test_a_watch_with_a_wrong_filter_is_refused(here: Served, query: str) -> None:
    answer = await here.client().get(f"/v1/runs/stream?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert here.service.shares.open_streams == 0


async def test_the_runs_of_a_user_show_live_ones_unless_asked(here: Served) -> None:
    await here.run(user_id="zoe")
    live = post_run(here, '{"agent":"silent","prompt":"go","user_id":"zoe"}')
    await live.until("event: started")
    client = here.client()
    assert [row["status"] for row in (await client.get("/v1/users/zoe/agents")).json()["agents"]] == ["running"]
    assert len((await client.get("/v1/users/zoe/agents?status=all")).json()["agents"]) == 2
    live.task.cancel()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "query",
    [
        "status=asleep", "limit=0", "limit=many", "limit=1e3", "limit=999999999999999999999", "from=yesterday",
        "to=2026-13-01", "cursor=junk!", "agent_id=has%20space", "agent=a%00b", "user_id=a%00b", "agent=..",
        "tenant=a%0Ab", "limit=%C2%B2",
    ],
)  # fmt: skip
async def test_a_filter_that_makes_no_sense_is_a_clear_400(here: Served, query: str) -> None:
    answer = await here.client().get(f"/v1/runs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert query.split("=")[0] in answer.json()["error"]


@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_read_honours_the_position_of_a_write(here: Served, how: str) -> None:
    run = await here.run()
    path = f"/v1/runs/{run[1].data['run_id']}"
    ours = "loom.run.events/0:0"
    for position, status, text in (
        (ours, 200, ""),
        (f"{ours}, {ours}", 200, ""),
        (f"{ours},yesterday", 400, "expected <topic>/<partition>:<offset>"),
        ("loom.run.events/0:999999", 400, "beyond the end"),
        ("loom.run.events/99:0", 400, "there is no partition 99"),
        (
            "loom.run.commands/0:0",
            400,
            "expected one of loom.entity.events, loom.provider.events, loom.run.events",
        ),
    ):
        answer = await here.client().get(path, **sent_with(how, position))
        assert answer.status_code == status, position
        assert text in answer.text
    assert answer.json()["code"] == "bad_request"


def sent_with(how: str, position: str) -> dict[str, Any]:
    return {"headers": {"X-Loomlog-Position": position}} if how == "header" else {"params": {"position": position}}


async def test_a_position_that_is_not_reached_in_time_is_503_with_the_lag(tmp_path: Path) -> None:
    async with served(tmp_path, waits={"position_s": 0.05}) as here:
        run = await here.run()
        path = f"/v1/runs/{run[1].data['run_id']}"
        position = (await here.client().get(path)).json()["position"]
        here.world.projecting = False
        late = await here.client().post("/v1/runs", json={"agent": "soaker", "prompt": "go"})
        answer = await here.client().get(path, headers={"X-Loomlog-Position": late.headers["X-Loomlog-Position"]})
        assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "not_yet", "1")
        assert answer.json()["lag"] > 0
        assert (await here.client().get(path, headers={"X-Loomlog-Position": position})).status_code == 200


READS = [route.path for route in ROUTES if route.method == "GET" and route.accepts_position]


@pytest.mark.parametrize("how", ["header", "query"])
async def test_every_read_waits_for_the_position_it_is_sent(here: Served, how: str) -> None:
    """Shown by the refusal of one that cannot be: it comes before anything else the path could be refused for."""
    for path in READS:
        answer = await here.client().get(re.sub(r"{\w+}", "any", path), **sent_with(how, "loom.provider.events/0:7"))
        assert (answer.status_code, "beyond the end of loom.provider.events/0" in answer.text) == (400, True), path


def test_only_public_routes_and_sockets_take_no_position() -> None:
    without = {route.path for route in ROUTES if not route.accepts_position}
    assert without == {
        "/healthz",
        "/readyz",
        "/v1/openapi.json",
        "/v1/openapi.yaml",
        "/v1/docs",
        "/v1/client-tools",
        "/v1/_webhooks/{name}",
        "/v1/_webhooks/{name}/replay",
        "/v1/_webhooks/{name}/test",
        "/v1/_webhooks/{tenant}/{name}",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/v1/_mcp",
        "/v1/_mcp_oauth/authorize",
        "/v1/_mcp_oauth/callback",
        "/v1/_mcp_oauth/client.json",
        "/ui/login-config.json",
        "/ui/logout",
    }


# --- control ---------------------------------------------------------------------------------------------------------


async def test_an_interactive_run_streams_over_several_turns(here: Served) -> None:
    wire = post_run(here, '{"agent":"parker","prompt":"go","interactive":true}')
    await wire.until("event: awaiting_input")
    run_id = here.world.commands()[0].run_id
    answer = await here.client().post(f"/v1/runs/{run_id}/input", json={"text": "second"})
    assert answer.json() == {"run_id": run_id, "delivered": True}
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")
    await wire.until('"text":"second"')
    cancelled = await here.client().post(f"/v1/agents/a_{run_id[2:]}/cancel", json={"reason": "enough"})
    actual = cancelled.json()
    assert (actual["cancelled"], actual["status"], actual["reason"], actual["cascaded"]) == (
        True,
        "cancelled",
        "enough",
        [],
    )
    assert frames_of(await wire.done())[-1].event == "done"
    again = await here.client().post(f"/v1/agents/a_{run_id[2:]}/cancel")
    assert again.status_code == 200
    late = await here.client().post(f"/v1/runs/{run_id}/input", json={"text": "third"})
    assert (late.status_code, late.json()["code"]) == (404, "not_found")


async def test_a_lost_call_waits_in_the_stream_until_somebody_resolves_it(here: Served) -> None:
    wire = post_run(here, '{"agent":"silent","prompt":"go"}')
    await wire.until("event: session")
    run_id = here.world.commands()[0].run_id
    here.world.lose_a_call(run_id)
    await wire.until("event: outcome_unknown")
    path = f"/v1/runs/{run_id}/calls/1.0/resolve"
    answer = await here.client().post(path, json={"outcome": "done", "result": "paid"})
    assert answer.json() == {"run_id": run_id, "call": "1.0", "repeated": False}
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")
    await wire.until('"settled_by":"operator"')
    again = await here.client().post(path, json={"outcome": "not_done"})
    assert (again.status_code, again.json()["code"]) == (409, "nothing_to_resolve")
    wire.task.cancel()  # type: ignore[union-attr]


@pytest.mark.parametrize("call", ["1", "1.x", "0.0", "1.0.0", "99999999.0"])
async def test_a_call_that_is_no_place_in_a_turn_is_refused(here: Served, call: str) -> None:
    answer = await here.client().post(f"/v1/runs/r_nothing/calls/{call}/resolve", json={"outcome": "done"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_many_clients_may_watch_one_run(here: Served) -> None:
    first = post_run(here)
    await first.until("event: started")
    run_id = here.world.commands()[0].run_id
    watchers = [Wire(here.app, "GET", f"/v1/runs/{run_id}/stream").begin() for _ in range(5)]
    await asyncio.gather(*(watcher.until("event: started") for watcher in watchers))
    await until(lambda: here.service.shares.open_streams == 6)
    here.world.reply(run_id, "hello")
    bodies = await asyncio.gather(*(watcher.done() for watcher in watchers))
    assert len(set(bodies)) == 1
    assert frames_of(bodies[0])[-1].event == "done"
    assert frames_of(await first.done())[-1].event == "done"


# --- pause -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_paused_with_its_reason_and_resumed(here: Served) -> None:
    wire = post_run(here)
    await wire.until("event: started")
    run_id = here.world.commands()[0].run_id
    client = here.client()
    answer = await client.post(f"/v1/runs/{run_id}/pause", json={"reason": "look"})
    assert (answer.status_code, answer.json()["pausing"]) == (200, True)
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")
    row = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (row["status"], row["pause_requested"], row["paused"], row["pause_reason"]) == (
        "running",
        True,
        False,
        "look",
    )
    again = await client.post(f"/v1/runs/{run_id}/pause")
    assert (again.status_code, again.json()["code"]) == (409, "already_pausing")
    answer = await client.post(f"/v1/runs/{run_id}/resume")
    assert (answer.status_code, answer.json()["resumed"]) == (200, True)
    assert (await client.get(f"/v1/runs/{run_id}")).json()["pause_reason"] is None
    again = await client.post(f"/v1/runs/{run_id}/resume")
    assert (again.status_code, again.json()["code"]) == (409, "not_paused")
    here.world.reply(run_id)
    assert "event: done" in await wire.done()


# --- compaction ------------------------------------------------------------------------------------------------------


async def parked_run(here: Served, texts: int = 4) -> str:
    """The id of a parked run in which something was said."""
    wire = post_run(here, '{"agent":"parker","prompt":"task","interactive":true}')
    await wire.until("awaiting_input")
    run_id = str(here.world.commands()[0].run_id)
    for number in range(texts):
        body = {"text": f"text {number} " + "long words " * 60}
        assert (await here.client().post(f"/v1/runs/{run_id}/input", json=body)).status_code == 200
    wire.leave()
    await wire.done()
    return run_id


async def test_a_compaction_answers_with_what_it_saved(here: Served) -> None:
    run_id = await parked_run(here)
    answer = await here.client().post(f"/v1/runs/{run_id}/compact", json={"reason": "tidy"})
    actual = answer.json()
    assert (answer.status_code, actual["run_id"], actual["compacted"], actual["applied"]) == (200, run_id, True, "live")
    assert 0 < actual["after_tokens"] < actual["before_tokens"]
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")
    again = (await here.client().post(f"/v1/runs/{run_id}/compact")).json()
    assert (again["compacted"], again["applied"]) == (False, "noop")


async def test_a_session_is_given_to_another_agent(here: Served) -> None:
    (session,) = [frame.data["text"] for frame in await here.run() if frame.event == "session"]
    answer = await here.client().post(f"/v1/sessions/{session}/replay", json={"agent": "soaker"})
    actual = answer.json()
    assert answer.status_code == 200
    assert actual["new_session_id"] != session
    assert actual["seed_run_id"].startswith("r_")
    assert actual["events_copied"] > 0
    assert actual["compacted"] is False


async def test_wishes_about_compaction_reach_the_start(here: Served) -> None:
    wish = {"enabled": True, "keep_last_n": 2, "model": "small", "memory_flush": True}
    await here.run(compaction=wish, allowed_hosts=["a.example"])
    (command,) = here.world.commands()
    assert command.compaction == Compaction(enabled=True, keep_last_n=2, model="small", memory_flush=True)
    assert command.options.web_search_filter == "drop"
