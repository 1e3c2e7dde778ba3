"""Calls that wait for approval on a whole stack: all is killed while they wait, are approved and are made."""

import os
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.test_agent_loop import frames_of, until
from tests.acceptance.test_channels import ended, get, poll, post
from tests.acceptance.test_families import api
from tests.acceptance.test_memory import kill_everything

pytestmark = pytest.mark.stack
CALLS = int(os.environ.get("APPROVAL_CALLS", "24"))
"""`make bench-approvals` has 1,000."""
DEATHS = max(1, CALLS // 500)
"""How often everything is killed while people decide."""
DENIED_EVERY = 2
PEOPLE = 16
LOG_READERS = 2
"""A caller has four places in the queue for reads of the log."""
BY = 5
"""What each call adds to the counter of its run."""


def start(client: httpx.Client, name: str) -> str:
    with client.stream("POST", "/v1/runs", json={"agent": "teller", "prompt": name}) as answer:
        return str(until(frames_of(answer), "agent")["run_id"])


def pending(client: httpx.Client, runs: Collection[str]) -> dict[str, dict[str, Any]]:
    """The approvals that wait, by run."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = get(client, "/v1/_approvals", limit=500, cursor=cursor)
        rows += page["approvals"]
        cursor = page["next"]
    return {row["run_id"]: row for row in rows if row["run_id"] in runs}


def decide(client: httpx.Client, row: dict[str, Any], act: str) -> httpx.Response:
    key = {"idempotency-key": f"{act}-{row['approval_id']}"}
    path = f"/v1/_approvals/{row['run_id']}/{row['approval_id']}/{act}"
    return client.post(path, json={"reason": "acceptance"}, headers=key)


def counted(stack: Installation, client: httpx.Client, name: str) -> int:
    answer = poll(lambda: client.get("/v1/_counter/show", params={"id": name}), lambda one: one.status_code != 503)
    return int(answer.json()["state"]["value"]) if answer.status_code == 200 else 0


def test_all_is_killed_and_each_call_is_made_once_after_its_approval_or_never(stack: Installation) -> None:
    began = time.monotonic()
    with api(stack) as client, ThreadPoolExecutor(PEOPLE) as people:
        names = dict(people.map(lambda name: (start(client, name), name), [f"pay-{number}" for number in range(CALLS)]))
        runs = list(names)
        rows = poll(lambda: pending(client, names), lambda found: len(found) == CALLS)
        first = rows[runs[0]]
        assert (first["tool"], first["rule"], first["reason"]) == ("Counter", "every-payment", "money leaves the house")
        assert first["may_approve"]
        assert '"by":5' in first["arguments"].replace(" ", "")
        assert set(people.map(lambda name: counted(stack, client, name), names.values())) == {0}
        wrong = {"arguments_sha256": "0" * 64}
        refused = client.post(f"/v1/_approvals/{runs[0]}/{first['approval_id']}/approve", json=wrong)
        assert (refused.status_code, refused.json()["code"]) == (409, "approval_mismatch")
    asked_s = time.monotonic() - began

    acts = {run_id: "deny" if number % DENIED_EVERY else "approve" for number, run_id in enumerate(runs)}
    downs_s = 0.0
    for death in range(DEATHS):
        wave = runs[death::DEATHS]
        with api(stack) as client, ThreadPoolExecutor(PEOPLE) as people:

            def say(run_id: str) -> None:
                with suppress(httpx.HTTPError):  # the api dies in the middle
                    decide(client, rows[run_id], acts[run_id])

            futures = [people.submit(say, run_id) for run_id in wave]
            futures[len(wave) // 8].result()
            kill_everything(stack)
        down = time.monotonic()
        stack.up()
        downs_s += time.monotonic() - down

    with api(stack) as client, ThreadPoolExecutor(PEOPLE) as people:

        def say_again(run_id: str) -> None:
            # The same key again: what was decided before the death of everything has its answer, nothing is done twice.
            again = poll(lambda: decide(client, rows[run_id], acts[run_id]), lambda answer: answer.status_code != 503)
            assert again.status_code == 200 or again.json()["code"] in ("approval_closed", "not_found"), again.text

        list(people.map(say_again, runs))
        late = decide(client, rows[runs[1]], "approve")
        assert (late.status_code, late.json()["code"]) in ((409, "approval_closed"), (404, "not_found")), late.text
        statuses = Counter(people.map(lambda run_id: ended(client, run_id)["status"], runs))
        assert statuses == {"completed": CALLS}
        made = dict(zip(runs, people.map(lambda run_id: counted(stack, client, names[run_id]), runs), strict=True))
        assert made == {run_id: BY if act == "approve" else 0 for run_id, act in acts.items()}
        shown = get(client, f"/v1/_approvals/{runs[0]}/{rows[runs[0]]['approval_id']}")
        assert (shown["status"], [vote["reason"] for vote in shown["votes"]]) == ("resolved", ["acceptance"])
    with api(stack) as client, ThreadPoolExecutor(LOG_READERS) as readers:
        list(readers.map(lambda run_id: check_order(client, run_id, acts[run_id]), runs))
    print(
        f"{CALLS} calls asked about in {asked_s:.0f} s; {DEATHS} deaths of everything, {downs_s:.0f} s to come back; "
        f"{sum(map(bool, made.values()))} made once after their approval, the others never; "
        f"{time.monotonic() - began:.0f} s in all"
    )


def check_order(client: httpx.Client, run_id: str, act: str) -> None:
    """The approval is in the log before the call, and a call that was denied is not there."""
    types = [event["type"] for event in get(client, "/v1/events", run_id=run_id, limit=200)["events"]]
    assert types.index("ApprovalDecided") < types.index("ApprovalGiven")
    assert types.count("ToolCallRequested") >= (act == "approve")
    if act == "approve":
        assert types.index("ApprovalGiven") < types.index("ToolCallRequested")
    else:
        assert "ToolCallRequested" not in types


def test_a_tenant_sets_tries_and_rolls_back_its_rules(stack: Installation) -> None:
    with api(stack) as client:
        run_id = start(client, "tried")
        row = poll(lambda: pending(client, [run_id]), bool)[run_id]
        assert decide(client, row, "approve").status_code == 200
        assert ended(client, run_id)["status"] == "completed"
        rules = [{"name": "no-counting", "tools": ["Count*"], "then": "deny", "reason": "closed"}]
        tried = post(client, f"/v1/_approvals/policy/test/{run_id}", {"rules": rules})
        assert [(one["tool"], one["outcome"], one["recorded"]) for one in tried["calls"]] == [("Counter", "deny", "ok")]
        wrong = client.put("/v1/_approvals/policy", json={"rules": [{"name": "x", "then": "maybe"}]})
        assert (wrong.status_code, "rules[0].then" in wrong.json()["error"]) == (400, True), wrong.text
        set_version = client.put("/v1/_approvals/policy", json={"rules": rules, "replaces": 0})
        assert (set_version.status_code, set_version.json()["version"]) == (200, 1), set_version.text
        outdated = client.put("/v1/_approvals/policy", json={"rules": [], "replaces": 0})
        assert (outdated.status_code, outdated.json()["code"]) == (409, "revision_conflict")
        run_id = start(client, "denied")
        assert ended(client, run_id)["status"] == "completed"
        assert counted(stack, client, "denied") == 0
        assert client.get("/v1/_approvals/policy", params={"version": 9}).status_code == 404
        assert client.put("/v1/_approvals/policy", json={"rules": []}).json()["version"] == 2
        assert post(client, "/v1/_approvals/policy/roll_back", {"version": 1})["restores"] == 1
        assert [one["version"] for one in get(client, "/v1/_approvals/policy/versions")["versions"]] == [3, 2, 1]
        assert client.put("/v1/_approvals/policy", json={"rules": []}).status_code == 200
    assert stack.loomlog("approvals", "ls", "--status", "all", "--json").json["total"] >= 1
