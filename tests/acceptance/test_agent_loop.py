"""People, families, sessions and limits over HTTP, with a real client against a real stack."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.services.api.answer_schemas import check_blocking_response

pytestmark = pytest.mark.stack
TIMEOUT_S = 60.0
Frame = dict[str, Any]


@pytest.fixture
def client(stack: Installation) -> Iterator[httpx.Client]:
    address = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"
    with httpx.Client(base_url=address, timeout=TIMEOUT_S, event_hooks={"response": [check_blocking_response]}) as made:
        yield made


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex[:12]}"


def frames_of(answer: httpx.Response) -> Iterator[tuple[str, str, Frame]]:
    """(event, id, data) of a stream as they come."""
    event = number = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("id: "):
            number = line[4:]
        elif line.startswith("data: "):
            yield event, number, json.loads(line[6:])


def until(frames: Iterator[tuple[str, str, Frame]], wanted: str) -> Frame:
    for event, _, data in frames:
        if event == wanted:
            return data
    raise AssertionError(f"the stream ended without {wanted}")


def finished(client: httpx.Client, **body: Any) -> list[tuple[str, Frame]]:
    answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 200, answer.text
    return [(event, data) for event, _, data in frames_of(answer)]


def steps(*wanted: dict[str, Any]) -> str:
    return json.dumps(wanted)


def test_a_question_waits_in_the_inbox_and_its_answer_lets_the_run_go_on(client: httpx.Client, user: str) -> None:
    ask = {"tool": "Interruption", "input": {"op": "ask", "question": "Shall I?", "options": ["yes", "no"]}}
    with client.stream("POST", "/v1/runs", json={"agent": "puppet", "prompt": steps(ask), "user_id": user}) as answer:
        frames = frames_of(answer)
        asked = until(frames, "interruption_pending")["interruption"]
        inbox = client.get(f"/v1/users/{user}/interrupts").json()["interrupts"]
        assert [one["interrupt_id"] for one in inbox] == [asked["interrupt_id"]]
        path = f"/v1/runs/{inbox[0]['run_id']}/interrupts/{asked['interrupt_id']}/resolve"
        assert client.post(path, json={"answer": "perhaps"}).status_code == 422
        assert client.post(path, json={"answer": "yes", "resolved_by": "ada"}).status_code == 200
        assert '"yes"' in until(frames, "text")["text"]
        until(frames, "done")
    assert client.get(f"/v1/users/{user}/interrupts").json()["interrupts"] == []


def test_a_parked_run_takes_more_turns_and_a_cancel_ends_it(client: httpx.Client, user: str) -> None:
    body = {"agent": "talker", "prompt": "one", "interactive": True, "user_id": user}
    with client.stream("POST", "/v1/runs", json=body) as answer:
        frames = frames_of(answer)
        begun = until(frames, "agent")
        until(frames, "awaiting_input")
        said = client.post(f"/v1/runs/{begun['run_id']}/input", json={"text": "two"})
        assert said.json() == {"run_id": begun["run_id"], "delivered": True}
        assert until(frames, "steer")["user_input"]["text"] == "two"
        until(frames, "text")
        until(frames, "awaiting_input")
        assert client.post(f"/v1/agents/{begun['agent_id']}/cancel", json={}).status_code == 200
        assert [event for event, _, _ in frames][-1] != "awaiting_input", "the stream ends with the run"
    assert client.get(f"/v1/agents/{begun['agent_id']}").json()["status"] == "cancelled"


def test_the_cancel_of_a_parent_reaches_its_child_and_the_state_stream_tells(client: httpx.Client, user: str) -> None:
    body = {"agent": "puppet", "prompt": steps({"spawn": "sleeper"}), "user_id": user}
    with (
        client.stream("GET", f"/v1/users/{user}/agents/stream") as watching,
        client.stream("POST", "/v1/runs", json=body) as answer,
    ):
        states = frames_of(watching)
        until(states, "stream_open")
        begun = until(frames_of(answer), "agent")
        while until(states, "run_state")["agent"] != "sleeper":
            pass
        assert client.post(f"/v1/agents/{begun['agent_id']}/cancel", json={}).status_code == 200
        ended: set[str] = set()
        while len(ended) < 2:
            state = until(states, "run_state")
            if state["status"] == "cancelled":
                ended.add(state["agent"])
    assert ended == {"puppet", "sleeper"}


def test_a_tree_of_sub_agents_finishes_and_its_root_hears_of_every_branch(client: httpx.Client, user: str) -> None:
    told = finished(client, agent="tree", prompt="tree tree 3 2", user_id=user)
    assert told[-1][0] == "done", told[-1]
    runs = client.get("/v1/runs", params={"user_id": user, "limit": 50}).json()["runs"]
    assert len(runs) == 1 + 3 + 6
    assert {run["status"] for run in runs} == {"completed"}
    assert sum(run["parent_agent_id"] is None for run in runs) == 1


def test_a_batch_is_joined_or_let_go(client: httpx.Client, user: str) -> None:
    spawns = [{"agent": name, "prompt": "x", "user_id": user} for name in ("talker", "no-such-agent", "talker")]
    joined = client.post("/v1/runs:batch", json={"spawns": spawns, "mode": "join"}).json()["results"]
    assert [one["status"] for one in joined] == ["completed", "failed", "completed"]
    assert joined[0]["final_text"] == "ok"
    detached = client.post("/v1/runs:batch", json={"spawns": spawns[:1], "mode": "detach"}).json()
    (run_id,) = [one["run_id"] for one in detached["results"]]
    with client.stream("GET", f"/v1/runs/{run_id}/stream") as answer:
        until(frames_of(answer), "done")


def test_a_stream_that_was_left_goes_on_after_the_last_frame_that_was_seen(client: httpx.Client, user: str) -> None:
    told = finished(client, agent="puppet", prompt=steps({"tool": "Context", "input": {"op": "time"}}), user_id=user)
    path = f"/v1/runs/{dict(told)['agent']['run_id']}/stream"
    with client.stream("GET", path, params={"from_seq": 0}) as answer:
        whole = list(frames_of(answer))
    numbered = [(event, number) for event, number, _ in whole if number]
    assert [event for event, _ in numbered][-1] == "done"
    last = numbered[len(numbered) // 2][1]
    with client.stream("GET", path, headers={"last-event-id": last}) as answer:
        rest = [(event, number) for event, number, _ in frames_of(answer) if number]
    assert rest == [one for one in numbered if int(one[1]) > int(last)]


def test_a_limit_stops_the_next_run_of_its_user_and_usage_is_summed(client: httpx.Client, user: str) -> None:
    first = finished(client, agent="talker", prompt="spend", user_id=user)
    wanted = {"tenant_id": "default", "scope": "user", "scope_id": user, "hard_limit": 1}
    assert client.put("/v1/_limits", json=wanted).status_code == 200
    refused = client.post("/v1/runs", json={"agent": "talker", "prompt": "spend", "user_id": user})
    assert (refused.status_code, refused.json()["code"]) == (429, "token_limit_exceeded")
    assert (refused.json()["scope"], refused.json()["limit"]) == ("user", 1)
    gone = client.delete("/v1/_limits", params={"scope": "user", "tenant": "default", "scope_id": user})
    assert gone.status_code == 204
    finished(client, agent="talker", prompt="spend", user_id=user)
    rows = client.get("/v1/_usage", params={"group_by": "user,provider"}).json()["rows"]
    (mine,) = [row for row in rows if row.get("user_id") == user]
    assert mine["call_count"] == 2
    assert mine["provider"] == "mock"
    assert dict(first)["done"]["usage"]["output_tokens"] * 2 == mine["output_tokens"]
