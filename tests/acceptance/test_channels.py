"""Channels, schedules and webhooks on a whole stack: all is killed while agents wait and deliveries are under way."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
import pytest

from tests.acceptance.installation import HOOK_SECRET, Installation
from tests.acceptance.test_agent_loop import frames_of, until
from tests.acceptance.test_families import api
from tests.acceptance.test_memory import kill_everything

pytestmark = pytest.mark.stack
WAIT_S = 30.0
"""Longest wait for what follows from a request, also while parts of the stack come up."""
COURIERS = ("first", "second", "third")
USER_OF_SCHEDULE = "acceptance-pulse"
FIRES_BEFORE, FIRES_MORE = 2, 2


ValueT = TypeVar("ValueT")


def poll(read: Callable[[], ValueT], is_done: Callable[[ValueT], bool]) -> ValueT:
    """Read again until it is done, or fail with what was read last."""
    deadline = time.monotonic() + WAIT_S
    while not is_done(value := read()):
        assert time.monotonic() < deadline, value
    return value


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    """The answer to a read, asked again while something is not up yet."""
    answer = poll(lambda: client.get(path, params=query), lambda answer: answer.status_code != 503)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> Any:
    answer = poll(lambda: client.post(path, json=body), lambda answer: answer.status_code != 503)
    assert answer.status_code == 200, answer.text
    return answer.json()


def deliver(client: httpx.Client, webhook: str, delivery_id: str, body: Mapping[str, Any]) -> httpx.Response:
    """Send a delivery as GitHub does, again while the stack cannot take it."""
    raw = json.dumps(body).encode()
    signature = hmac.new(HOOK_SECRET.encode(), raw, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-delivery": delivery_id,
        "x-hub-signature-256": f"sha256={signature}",
    }
    path = f"/v1/_webhooks/{webhook}"
    return poll(
        lambda: client.post(path, content=raw, headers=headers), lambda answer: answer.status_code in (200, 202)
    )


def start_courier(client: httpx.Client, name: str) -> str:
    """Start a run that waits for an issue, and return its id once it waits."""
    with client.stream("POST", "/v1/runs", json={"agent": "courier", "prompt": name}) as answer:
        run_id = str(until(frames_of(answer), "agent")["run_id"])
    query = {"run_id": run_id, "type": "CallWaiting"}
    poll(lambda: get(client, "/v1/events", **query)["events"], bool)
    return run_id


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return dict(poll(lambda: get(client, f"/v1/runs/{run_id}"), lambda run: run["status"] != "running"))


def runs_of(client: httpx.Client, user_id: str) -> list[dict[str, Any]]:
    return list(get(client, "/v1/runs", user_id=user_id, limit=200)["runs"])


def reports(client: httpx.Client) -> list[dict[str, Any]]:
    messages = get(client, "/v1/_channels/acceptance%2Freports/peek", max_messages=100)["messages"]
    return [message["value"] for message in messages]


def fires(client: httpx.Client, def_id: str) -> list[dict[str, Any]]:
    """What the schedule has fired, oldest first."""
    rows = get(client, f"/v1/_schedules/{def_id}/fires", limit=200)["fires"]
    return [row for row in reversed(rows) if row.get("run_id")]


def create_schedule(client: httpx.Client) -> str:
    segments = [{"role": "user", "content": [{"type": "trusted-text", "text": "[]"}]}]
    overlay = {"agent": "puppet", "schedule": "@every 1s", "user_id": USER_OF_SCHEDULE, "prompt": segments}
    return str(post(client, "/v1/_scheduledef", {"op": "create", "name": "pulse", "overlay": overlay})["def_id"])


def retire(client: httpx.Client, def_id: str) -> list[dict[str, Any]]:
    """Let the schedule end, and return its fires when the last of their runs has ended."""
    post(client, "/v1/_scheduledef", {"op": "retire", "def_id": def_id, "retired": True})
    return list(
        poll(lambda: fires(client, def_id), lambda rows: all(row["status"] not in ("", "running") for row in rows))
    )


def test_all_is_killed_and_what_waited_gets_its_message_and_everything_happens_once(stack: Installation) -> None:
    with api(stack) as client:
        def_id = create_schedule(client)
        couriers = {name: start_courier(client, name) for name in COURIERS[:1]}
        accepted = deliver(client, "issues", "issue-1", {"issue": "one"})
        assert (accepted.status_code, accepted.json()["delivery_id"]) == (202, "issue-1")
        assert ended(client, couriers["first"])["status"] == "completed"
        before = poll(lambda: fires(client, def_id), lambda rows: len(rows) >= FIRES_BEFORE)
        couriers |= {name: start_courier(client, name) for name in COURIERS[1:]}
        spawned = [deliver(client, "triage", f"task-{number}", task(number)).json() for number in (1, 2)]
        accepted = deliver(client, "issues", "issue-2", {"issue": "two"})
    kill_everything(stack)
    stack.up()
    with api(stack) as client:
        for number in (1, 2, 3):
            again = deliver(client, "triage", f"task-{number}", task(number))
            assert again.status_code == (202 if number == 3 else 200), again.text
            if number < 3:
                assert again.json()["run_id"] == spawned[number - 1]["run_id"]
        for number, status in ((1, 200), (2, 200), (3, 202)):
            again = deliver(client, "issues", f"issue-{number}", {"issue": ("one", "two", "three")[number - 1]})
            assert again.status_code == status, again.text

        ends = [ended(client, run_id) for run_id in couriers.values()]
        assert {run["status"] for run in ends} == {"completed"}, json.dumps(ends)
        received = reports(client)
        assert received[0] == {"by": "first", "issue": {"issue": "one"}}
        assert sorted(report["by"] for report in received) == sorted(COURIERS), "each of them has had one message"
        assert sorted(report["issue"]["issue"] for report in received) == ["one", "three", "two"]

        for number in (1, 2, 3):
            (run,) = runs_of(client, f"acceptance-sender-{number}")
            assert ended(client, run["run_id"])["status"] == "completed"

        poll(lambda: fires(client, def_id), lambda rows: len(rows) >= len(before) + FIRES_MORE)
        rows = retire(client, def_id)
        assert [row["instant"] for row in rows][: len(before)] == [row["instant"] for row in before]
        instants = [row["instant"] for row in rows]
        assert instants == sorted(set(instants)), "no instant twice, also not over the death of everything"
        assert {row["status"] for row in rows} == {"completed"}
        assert sorted(run["run_id"] for run in runs_of(client, USER_OF_SCHEDULE)) == sorted(
            row["run_id"] for row in rows
        )
    for aggregate in ("webhook:default/triage", "schedule:default/pulse"):
        assert "equal" in stack.loomlog("replay", aggregate).out


def task(number: int) -> dict[str, Any]:
    """The body of a delivery; each has a user of its own, so its runs can be counted."""
    return {"title": f"Look at task {number}", "sender": f"acceptance-sender-{number}"}
