"""Acts and erasures on a whole stack, whose processes are killed while operators work."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.test_agent_loop import finished
from tests.acceptance.test_channels import poll
from tests.acceptance.test_families import WAIT_S, api
from tests.acceptance.test_memory import OUTAGE_S, until_answered

pytestmark = pytest.mark.stack
SECRET = "ghp_" + "a1B2" * 9
WORDS = "the words of a person who leaves"
PERSON = "leaver"
DEATHS = 2
CONNECTS_MAX = 9
"""The client waits longer before each; the last comes after two minutes."""
ERASE = {"subject": PERSON, "dry_run": False, "confirm": PERSON, "reason": "asked"}
PLACE = "/v1/_erasure?tenant=default"


@contextmanager
def dying(stack: Installation, name: str) -> Iterator[threading.Event]:
    """Kill a service again and again; the event is set when it has died often enough."""
    enough = threading.Event()

    def kill() -> None:
        killed = set[int]()
        while len(killed) < DEATHS:
            children = stack.loomlog("status", "--json").json["children"]
            child = next(child for child in children if child["name"] == name)
            if child["state"] == "ready" and child["pid"] not in killed:
                with suppress(ProcessLookupError):
                    os.kill(child["pid"], signal.SIGKILL)
                    killed.add(child["pid"])
        enough.set()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        yield enough
    finally:
        killer.join(60)
    assert not killer.is_alive()


def patient(stack: Installation) -> httpx.Client:
    """A client that waits for an api that is starting."""
    address = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"
    return httpx.Client(base_url=address, timeout=WAIT_S, transport=httpx.HTTPTransport(retries=CONNECTS_MAX))


def put_limit(client: httpx.Client, key: str, number: int) -> httpx.Response:
    """The answer to a request that is repeated until an api gives one."""
    body = {"tenant_id": "acts", "scope": "user", "scope_id": key, "hard_limit": number + 1}
    deadline = time.monotonic() + OUTAGE_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            answer = client.put("/v1/_limits", json=body, headers={"Idempotency-Key": key})
            if answer.status_code < 500:
                return answer
    raise AssertionError("no api answered")


def acts(stack: Installation, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.loomlog("audit", "acts", "--json", *options).json["acts"]
    return found


def test_each_act_is_there_once_whoever_dies(stack: Installation) -> None:
    sent: list[str] = []
    with patient(stack) as client, dying(stack, "api") as enough:
        while not enough.is_set() or len(sent) < 20:
            assert put_limit(client, f"acts-{len(sent)}", len(sent)).status_code == 200
            sent.append(f"acts-{len(sent)}")
        position = put_limit(client, "last", 0).headers["x-loomlog-position"]  # the last death may be this moment's
        until_answered(client, "/v1/_audit", position=position)
    listed = [act for act in acts(stack, "--what", "limit.set", "--limit", "500") if "acts-" in act["target"]]
    targets = [act["target"] for act in listed]
    assert len(targets) == len(set(targets)), "none is there twice"
    assert {f"user {key} acts" for key in sent} <= set(targets), targets
    assert {act["outcome"] for act in listed} == {"done"}


def test_an_act_says_who_and_how_and_has_no_secret(stack: Installation) -> None:
    with patient(stack) as client:
        hook = {"owner": "acts", "name": "h", "phase": "pre", "callback_url": f"http://127.0.0.1:1/?key={SECRET}"}
        made = client.post("/v1/hooks", json={**hook, "agents": ["nobody"]})
        assert made.status_code < 300, made.text
    stack.loomlog("pause", "--reason", "acceptance")
    stack.loomlog("resume")
    shown = acts(stack, "--since", "1h", "--limit", "50")
    assert SECRET not in str(shown)
    assert {act["transport"] for act in shown} >= {"http", "cli"}


def test_an_erased_person_is_in_no_view_and_stays_so(stack: Installation) -> None:
    key = f"/v1/_memory/scopes/user/{PERSON}/keys/drink"
    with api(stack) as client:
        frames = finished(client, agent="talker", prompt=WORDS, user_id=PERSON)
        ids = {name: data[name] for _, data in frames for name in ("run_id", "session_id", "agent_id") if name in data}
        assert client.put(key, json={"value": WORDS}).status_code == 200
        dry = client.post(PLACE, json={"subject": PERSON}).json()
        assert (dry["dry_run"], dry["deleted"]) == (True, {})
        done = client.post(PLACE, json=ERASE)
        assert done.status_code == 200, done.text
        answer = done.json()
        assert (answer["complete"], answer["incomplete"]) == (False, []), "the log has it in clear"
        assert answer["deleted"]["chats"] == 1
        assert "stay in clear in the log" in answer["retained"]["everything"]
        assert answer["receipt"]["erasure_id"] == answer["erasure_id"]
        gone = (
            f"/v1/sessions/{ids['session_id']}/transcript", f"/v1/runs/{ids['run_id']}", key,
            f"/v1/runs/{ids['run_id']}/stream", f"/v1/agents/{ids['agent_id']}",
        )  # fmt: skip
        assert {path: client.get(path).status_code for path in gone} == dict.fromkeys(gone, 404)
        assert client.get(f"{key}/history").json()["versions"] == []
        assert WORDS not in client.get(f"/v1/users/{PERSON}/agents", params={"status": "all"}).text
        assert client.post(PLACE, json=ERASE).status_code == 200, "repeating does no harm"
        assert client.get(f"{PLACE}&subject={PERSON}").json()["tier1_covered"]["total"] == 0
    proof = stack.loomlog("subjects", "proof", PERSON, "--tenant", "default", code=1)
    assert "stay in clear in the log" in proof.out
    stack.loomlog("projections", "rebuild")
    with api(stack) as client:
        assert {path: client.get(path).status_code for path in gone} == dict.fromkeys(gone, 404)
        # The projector looks for the live build every two seconds, and who comes next reads what it has just written.
        ended = dict(finished(client, agent="talker", prompt="after", user_id="stayer"))["agent"]["run_id"]
        poll(lambda: client.get("/v1/users/stayer/agents", params={"status": "all"}).text, lambda text: ended in text)
