"""Definitions on a whole stack: made, run at once, changed beside a death of the runtime, and taken back."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.test_families import api

WRITES = 60
KILL_AT = (15, 35)
OVERLAY: Mapping[str, Any] = {"provider": "mock", "model": "mock-generic", "tools": ["Context"]}


def define(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/_agentdef", json=body)
    assert answer.status_code == 200, answer.text
    row: dict[str, Any] = answer.json()
    return row


def pin_of_run(client: httpx.Client, agent: str) -> dict[str, Any]:
    """The pin of a run that is started now."""
    lines = client.post("/v1/runs", json={"agent": agent, "prompt": "hi"}).text.splitlines()
    run_id = next(json.loads(line[6:])["run_id"] for line in lines if line.startswith("data: ") and '"run_id"' in line)
    blame = client.get(f"/v1/runs/{run_id}/blame")
    assert blame.status_code == 200, blame.text
    told: dict[str, Any] = blame.json()
    return told


def kill_owner(stack: Installation) -> None:
    """Kill the runtime that owns the partitions; what status says may be of one that has died meanwhile."""
    while True:
        children = stack.loomlog("status", "--json").json["children"]
        owner = next((child["pid"] for child in children if child.get("role") == "owner"), None)
        if owner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(owner, signal.SIGKILL)
                return


@pytest.mark.stack
def test_an_agent_is_made_run_promoted_and_rolled_back(stack: Installation) -> None:
    with api(stack) as client:
        first = define(client, op="create", name="shipped", overlay={**OVERLAY, "system_prompt": "one"})
        assert pin_of_run(client, "shipped")["def_id"] == first["def_id"]
        second = define(client, op="fork", name="shipped", overlay={"system_prompt": "two"}, description="shorter")
        define(client, op="promote", def_id=second["def_id"], why="better answers")
        told = pin_of_run(client, "shipped")
        assert (told["def_id"], told["version"], told["promoted_why"]) == (second["def_id"], 2, "better answers")
        back = define(client, op="rollback", name="shipped", why="worse answers")
        assert (back["def_id"], back["undone_def_id"]) == (first["def_id"], second["def_id"])
        assert pin_of_run(client, "shipped")["def_id"] == first["def_id"]
    replayed = stack.loomlog("replay", "definition:default/agent/shipped")
    assert "equal" in replayed.out


@pytest.mark.stack
def test_every_version_is_made_once_beside_deaths_of_the_runtime(stack: Installation) -> None:
    killers: list[threading.Thread] = []
    with api(stack) as client:
        for number in range(WRITES):
            if number in KILL_AT:
                killers.append(threading.Thread(target=kill_owner, args=[stack]))
                killers[-1].start()
            body = {"op": "create", "name": "lasting", "overlay": {**OVERLAY, "system_prompt": f"prompt {number}"}}
            for _ in range(40):
                answer = client.post("/v1/_agentdef", json=body, headers={"Idempotency-Key": f"lasting-{number}"})
                if answer.status_code != 503:
                    break
            assert answer.status_code == 200, answer.text
            assert answer.json()["version"] == number + 1
        for killer in killers:
            killer.join()
        versions = define(client, op="list", name="lasting")["versions"]
        assert [one["version"] for one in versions] == list(range(WRITES, 0, -1))
        assert [one["promoted"] for one in versions] == [True, *[False] * (WRITES - 1)]
        assert pin_of_run(client, "lasting")["version"] == WRITES


@pytest.mark.stack
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"op": "create", "name": "../up", "overlay": OVERLAY}, "bad_name"),
        ({"op": "create", "name": "odd", "overlay": {"sytem_prompt": "x"}}, "unknown_field"),
        ({"op": "dance"}, "unknown_op"),
        ({"op": "get"}, "missing_field"),
        ({"op": "get", "def_id": "def_0000000000000000"}, "not_found"),
        ({"op": "create", "name": "odd", "overlay": {"system_prompt": "x" * 140_000}}, "too_large"),
        ([], "invalid_definition"),
    ],
)
def test_what_is_wrong_is_said(stack: Installation, body: Any, reason: str) -> None:
    with api(stack) as client:
        answer = client.post("/v1/_agentdef", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["reason"]) == (422, "tool_refused", reason)


@pytest.mark.stack
@pytest.mark.parametrize(
    "raw", [b'{"op":"create","name":"x","overlay":{"temperature":NaN}}', b'{"op":"get","x":"\\ud800"}']
)
def test_what_is_no_json_is_refused(stack: Installation, raw: bytes) -> None:
    with api(stack) as client:
        answer = client.post("/v1/_agentdef", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
