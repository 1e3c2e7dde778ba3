"""Hooks and credentials over HTTP, with a real client against a real stack."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation, running_installation
from tests.acceptance.lab_model import LabModel
from tests.acceptance.test_channels import poll
from tests.services.api.answer_schemas import check_blocking_response

pytestmark = pytest.mark.stack
SECRET = "hunter2-hunter2-hunter2"
TIMEOUT_S = 60.0
OPERATOR, BOB = "token-of-the-operator", "token-of-bob"
PRINCIPALS = """
principals:
  bob: { tenant: shop, subject: bob, scopes: [runs:create, runs:read], token_env: LOOMLOG_BOB_TOKEN }
"""


class HookServer:
    """Answers each path with what it was told; remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, bytes, dict[str, str]]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                mine.asked.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                answer = json.dumps(mine.answers.get(self.path, {})).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Installation, LabModel]]:
    def prepare(made: Installation) -> None:
        principals = made.folder / "principals.yaml"
        principals.write_text(PRINCIPALS)
        made.environ["LOOMLOG_CONFIG_FILES"] += f":{principals}"
        made.environ |= {"LOOMLOG_AUTH_TOKEN": OPERATOR, "LOOMLOG_TOKEN": OPERATOR, "LOOMLOG_BOB_TOKEN": BOB}
        made.environ |= {"LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST": "127.0.0.1", "LOOMLOG_OPERATOR_KEY_RESTRICTION": "1"}

    with running_installation("hooks", prepare) as installation:
        lab = LabModel(installation.lab_port)
        yield installation, lab
        lab.close()


@pytest.fixture(scope="module")
def own(place: tuple[Installation, LabModel]) -> Installation:
    return place[0]


@pytest.fixture(scope="module")
def lab(place: tuple[Installation, LabModel]) -> LabModel:
    return place[1]


@pytest.fixture
def server() -> Iterator[HookServer]:
    made = HookServer()
    yield made
    made.close()


@pytest.fixture
def client(own: Installation) -> Iterator[httpx.Client]:
    with client_of(own, OPERATOR) as made:
        yield made


def client_of(own: Installation, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://{own.environ['LOOMLOG_LISTEN_ADDR']}",
        timeout=TIMEOUT_S,
        headers={"authorization": f"Bearer {token}"},
        event_hooks={"response": [check_blocking_response]},
    )


def frames(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The frames of a run, of the lab's agent unless the body names another, to its end."""
    answer = client.post("/v1/runs", json={"agent": "lab-reviewer", "prompt": "review", **body})
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def test_hooks_see_and_change_the_calls_of_a_run(client: httpx.Client, server: HookServer) -> None:
    server.answers |= {
        "/guard": {"deny": {"text": "not today", "is_error": True}},
        "/hide": {"result": {"text": "nothing to see"}},
    }
    made = {
        name: client.post("/v1/hooks", json={"owner": "ops", "name": name, **fields}).json()
        for name, fields in {
            "guard": {"phase": "pre", "tools": ["Write"], "callback_url": f"{server.url}/guard"},
            "hide": {"phase": "post", "tools": ["Rea*"], "callback_url": f"{server.url}/hide"},
        }.items()
    }
    assert [hook["name"] for hook in client.get("/v1/hooks").json()["hooks"]] == ["guard", "hide"]
    told = frames(client)
    results = {f["tool_use"]["name"]: f for f in told if f.get("type") == "tool_result"}
    assert (results["Write"]["text"], results["Write"]["is_error"]) == ("not today", True)
    assert results["Read"]["text"] == "nothing to see"
    assert [f["hook_acted"]["act"] for f in told if f.get("type") == "hook_acted"] == ["rewrote_result", "denied"]
    path, body, headers = server.asked[0]
    stamp, given = headers["x-loomlog-signature"].split(",v1=")
    expected = hmac.new(
        made[path[1:]]["signing_secret"].encode(), stamp.removeprefix("t=").encode() + b"." + body, hashlib.sha256
    )
    assert hmac.compare_digest(given, expected.hexdigest())
    for one in made.values():
        assert client.delete(f"/v1/hooks/{one['id']}").json() == {"deleted": one["id"]}
    before = len(server.asked)
    assert not [f for f in frames(client) if f.get("type") == "hook_acted"]
    assert len(server.asked) == before


def test_a_hook_that_is_away_lets_calls_pass_or_not_as_it_says(client: httpx.Client) -> None:
    nowhere = {
        "owner": "ops",
        "name": "away",
        "phase": "pre",
        "tools": ["Glob"],
        "callback_url": "http://127.0.0.1:9/x",
    }
    for fail_mode, text in (("open", "shop/orders.py"), ("closed", "tool_call denied: hook ops/away unavailable")):
        hook_id = client.post("/v1/hooks", json={**nowhere, "fail_mode": fail_mode}).json()["id"]
        (result,) = [f for f in frames(client) if f.get("type") == "tool_result" and f["tool_use"]["name"] == "Glob"]
        assert text in result["text"]
        client.delete(f"/v1/hooks/{hook_id}")


def test_a_provider_without_a_key_of_the_operators_is_used_with_that_of_a_run_and_of_its_tree(
    own: Installation, client: httpx.Client, lab: LabModel
) -> None:
    refused = client.post("/v1/runs", json={"agent": "guest-reviewer", "prompt": "review"})
    assert (refused.status_code, refused.json()["code"]) == (503, "pin_unavailable")
    assert refused.json()["error"].endswith("as the credential GUEST_KEY")
    lab.asked.clear()
    told = frames(client, agent="guest-reviewer", user_credentials={"GUEST_KEY": SECRET})
    assert {f["usage"]["credential_source"] for f in told if f.get("type") == "usage"} == {"run"}
    own_calls = len(lab.asked)
    run_id = next(frame["run_id"] for frame in told if "run_id" in frame)
    assert own.loomlog("replay", run_id, "--json").json["drift"] == [], "the key is gone with the end of the run"
    spawn = json.dumps([{"spawn": "guest-reviewer", "prompt": "review"}])
    frames(client, agent="puppet", prompt=spawn, user_credentials={"GUEST_KEY": SECRET})
    assert len(lab.asked) == 2 * own_calls > 0
    assert {asked["authorization"] for asked in lab.asked} == {f"Bearer {SECRET}"}


def test_who_may_not_spend_the_operators_keys_is_refused_or_brings_one(own: Installation, lab: LabModel) -> None:
    lab.asked.clear()
    with client_of(own, BOB) as bob:
        refused = bob.post("/v1/runs", json={"agent": "lab-reviewer", "prompt": "review"})
        assert (refused.status_code, refused.json()["code"]) == (403, "operator_key_restricted")
        assert refused.json()["error"].endswith("as the credential LAB_KEY")
        assert lab.asked == []
        frames(bob, user_credentials={"LAB_KEY": SECRET})
        assert {asked["authorization"] for asked in lab.asked} == {f"Bearer {SECRET}"}


def test_credentials_are_in_no_answer_no_record_and_no_row_although_one_was_the_key_of_every_call(
    own: Installation, lab: LabModel, client: httpx.Client
) -> None:
    lab.asked.clear()
    told = frames(client, user_bearer=SECRET, user_credentials={"git": SECRET, "LAB_KEY": SECRET})
    assert {asked["authorization"] for asked in lab.asked} == {f"Bearer {SECRET}"}
    run_id = next(frame["run_id"] for frame in told if "run_id" in frame)
    paid = [frame["usage"] for frame in told if frame.get("type") == "usage"]
    assert {(usage["credential_source"], usage["credential_scope_id"]) for usage in paid} == {("run", run_id)}
    started = own.loomlog("replay", run_id, "--json").json["events"][0]
    assert SECRET not in json.dumps(told) + json.dumps(started)
    found = [
        path
        for path in own.folder.rglob("*")
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
    ]
    assert found == []


def test_a_rule_tells_its_address_of_a_call_that_waits(client: httpx.Client, server: HookServer) -> None:
    ask = {"subjects": ["default"], "notify": {"url": f"{server.url}/waits"}}
    rule = {"name": "writes", "tools": ["Write"], "then": "ask", "reason": "it changes files", "ask": ask}
    assert client.put("/v1/_approvals/policy", json={"rules": [rule]}).status_code == 200
    with ThreadPoolExecutor(1) as beside:
        told = beside.submit(frames, client)
        asked = poll(lambda: [one for one in server.asked if one[0] == "/waits"], bool)
        body = json.loads(asked[0][1])
        assert (body["type"], body["data"]["tool"], body["data"]["rule"]) == ("approval.pending", "Write", "writes")
        assert asked[0][2]["webhook-id"]
        place = f"/v1/_approvals/{body['data']['run_id']}/{body['data']['approval_id']}"
        seen = {"arguments_sha256": body["data"]["arguments_sha256"]}
        assert client.post(f"{place}/approve", json=seen).json()["status"] == "resolved"
        types = [one.get("type") for one in told.result(TIMEOUT_S)]
    assert types.index("interruption_resolved") < types.index("tool_result", types.index("interruption_resolved"))
    assert len(asked) == len([one for one in server.asked if one[0] == "/waits"])
    assert client.put("/v1/_approvals/policy", json={"rules": []}).status_code == 200
