"""Memory on a whole stack: an agent remembers, all is killed, it is asked."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from loomlog.connectors.models.mock.memory import own_key
from tests.acceptance.installation import Installation
from tests.acceptance.test_agent_loop import finished
from tests.acceptance.test_families import api

pytestmark = pytest.mark.stack
USER_ID = "ada"
KEYS = f"/v1/_memory/scopes/user/{USER_ID}/keys"
TURNS = 2
PROMPT = f"memory {TURNS} of the acceptance test"
OWN = f"own/{own_key(PROMPT)}"
DEATHS_OF_POSTGRES = 2
WRITES_MIN = 40
OUTAGE_S = 45.0
"""Longest time of writes beside deaths of Postgres; it recovers within a second or two."""


def asked(client: httpx.Client, *calls: tuple[str, Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """Run id and results of a new run of the user that makes these calls of Memory."""
    frames = finished(client, agent="historian", prompt=json.dumps(calls), user_id=USER_ID)
    run_id = next(data["run_id"] for event, data in frames if event == "agent")
    results = [data for event, data in frames if event == "tool_result"]
    assert len(results) == len(calls), frames
    return run_id, [json.loads(one["text"]) for one in results]


def kill_everything(stack: Installation) -> None:
    """Kill the supervisor, so that it starts nothing again, and whatever it has started."""
    record = json.loads((stack.folder / "home" / "stack.json").read_text())
    for pid in (record["supervisor"]["pid"], *(child["pid"] for child in record["children"])):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def dying_postgres(stack: Installation) -> Iterator[threading.Event]:
    """Kill Postgres again and again; the event is set when it has died often enough."""
    enough = threading.Event()

    def kill() -> None:
        killed = set[int]()
        while len(killed) < DEATHS_OF_POSTGRES:
            children = stack.loomlog("status", "--json").json["children"]
            child = next(child for child in children if child["name"] == "postgres")
            if child["state"] == "ready" and child["pid"] not in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child["pid"], signal.SIGKILL)
                    killed.add(child["pid"])
        enough.set()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        yield enough
    finally:
        killer.join(OUTAGE_S)
    assert not killer.is_alive()


def until_answered(client: httpx.Client, path: str, **query: str) -> Any:
    """The answer to a read, asked again while something is not up yet."""
    deadline = time.monotonic() + OUTAGE_S
    while True:
        answer = client.get(path, params=query)
        if answer.status_code != 503 or time.monotonic() > deadline:
            assert answer.status_code == 200, answer.text
            return answer.json()


def test_an_agent_remembers_all_is_killed_and_it_is_asked(stack: Installation) -> None:
    with api(stack) as client:
        frames = finished(client, agent="rememberer", prompt=PROMPT, user_id=USER_ID)
        run_id = next(data["run_id"] for event, data in frames if event == "agent")
        assert [data.get("is_error", False) for event, data in frames if event == "tool_result"] == [
            False
        ] * 4 * TURNS, frames
        put = client.put(f"{KEYS}/by/hand", json={"value": {"n": 1}})
        assert put.status_code == 200, put.text
        position = put.headers["x-loomlog-position"]
    kill_everything(stack)
    stack.up()
    with api(stack) as client:
        calls = (
            ("get", {"key": OWN, "include_provenance": True}),
            ("incr", {"key": "count", "delta": 10}),
            ("get", {"key": "by/hand"}),
            ("list", {"prefix": "turns/"}),
        )
        asking, (own, count, by_hand, turns) = asked(client, *calls)
        assert own["value"] == {"run": own_key(PROMPT), "turn": TURNS}
        assert own["source"]["run_id"] == run_id
        assert count["value"] == TURNS + 10, "every incr before the death of everything counts once"
        assert by_hand["value"] == {"n": 1}
        assert [entry["value"] for entry in turns["entries"]] == [list(range(1, TURNS + 1))]

        history = until_answered(client, f"{KEYS}/{OWN}/history")["versions"]
        sources = [one["source"] for one in history]
        assert [(one["run_id"], one["turn"], one["call"]) for one in sources] == [(run_id, 2, 1), (run_id, 1, 1)]
        assert {one["agent"] for one in sources} == {"rememberer"}
        last = until_answered(client, f"{KEYS}/count/history", limit="1")["versions"][0]
        assert (last["source"]["run_id"], last["value"]) == (asking, TURNS + 10)

        at = {"scope": "user", "scope_id": USER_ID, "key": "count"}
        assert until_answered(client, "/v1/_memory/at", **at, before_run=asking)["value"] == TURNS
        assert until_answered(client, "/v1/_memory/at", **at, before_run=run_id)["existed"] is False
        by_hand_then = {**at, "key": "by/hand", "event": position}
        assert until_answered(client, "/v1/_memory/at", **by_hand_then)["value"] == {"n": 1}
    replayed = stack.loomlog("replay", f"memory:default/user/{USER_ID}")
    assert "equal" in replayed.out


def test_what_was_accepted_while_postgres_died_is_kept(stack: Installation) -> None:
    accepted: dict[str, int] = {}
    statuses: list[int] = []
    with api(stack) as client:
        with dying_postgres(stack) as enough:
            deadline = time.monotonic() + OUTAGE_S
            while not enough.is_set() or len(statuses) < WRITES_MIN:
                assert time.monotonic() < deadline, statuses
                number = len(statuses)
                key = f"outage/{number % 7}"
                # Every other one may be repeated, so its owner has to look up whether it was carried out before.
                headers = {"idempotency-key": f"outage-{number}"} if number % 2 else {}
                answer = client.put(f"{KEYS}/{key}", json={"value": number}, headers=headers)
                statuses.append(answer.status_code)
                if answer.status_code == 200:
                    accepted[key] = number
                else:
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["code"] in ("command_pending", "memory_unavailable"), answer.text
                    assert answer.headers["retry-after"]
        assert statuses.count(200) > WRITES_MIN // 2, statuses
        entries = until_answered(client, KEYS, prefix="outage/")["entries"]
        stored = {entry["key"]: entry["value"] for entry in entries}
        assert set(accepted) <= set(stored)
        for key, number in accepted.items():
            assert stored[key] >= number, f"{key}: {number} was accepted, it is {stored[key]}"
        versions = until_answered(client, f"{KEYS}/outage/0/history")["versions"]
        values = [one["value"] for one in versions]
        assert values == sorted(set(values), reverse=True), "none twice, and in the order in which they were sent"
        _, (count,) = asked(client, ("get", {"key": "outage/1"}))
        assert count["value"] == stored["outage/1"]
