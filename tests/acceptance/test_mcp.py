"""MCP on a whole stack: the official client in both eras, and the api killed in the middle of everything."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
import venv
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import REPOSITORY, Installation

pytestmark = pytest.mark.stack
REVISION, PATH = "2026-07-28", "/v1/_mcp"
CLIENT = "mcp==2.3.0"
QUESTION = [{"tool": "Interruption", "input": {"op": "ask", "question": "Shall I?"}}]
WAIT_S = 60.0
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "acceptance", "version": "1"},
}


@pytest.fixture(scope="module")
def stack(second_stack: Installation) -> Installation:
    return second_stack


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the official client, which needs other versions of libraries than this checkout."""
    target = tmp_path_factory.mktemp("mcp") / "environment"
    venv.create(target, symlinks=True, with_pip=False)
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", target / "bin" / "python", CLIENT], check=True)
    return target


def address(stack: Installation) -> str:
    return f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"


def stateless(stack: Installation, method: str, *, knows_tasks: bool = True, **params: Any) -> Any:
    """The result of a request without a session."""
    extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if knows_tasks else {}
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": extensions,
    }
    headers = {"mcp-protocol-version": REVISION, "mcp-method": method}
    named = params.get("taskId", params.get("name")) if method.startswith(("tasks/", "tools/")) else None
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers |= {"mcp-name": named} if named else {}
    answer = httpx.post(address(stack) + PATH, json=body, headers=headers, timeout=WAIT_S).json()
    assert "result" in answer, answer
    return answer["result"]


def eventually(read: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
    """Read until it is enough, at most WAIT_S; an api that is not there is asked again."""
    ends_at = time.monotonic() + WAIT_S
    while True:
        value = None
        with contextlib.suppress(httpx.TransportError, AssertionError):
            if is_enough(value := read()):
                return value
        assert time.monotonic() < ends_at, value


def kill_api(stack: Installation) -> None:
    """Kill the api; the supervisor starts another one."""
    child = next(one for one in stack.loomlog("status", "--json").json["children"] if one["name"] == "api")
    os.kill(child["pid"], signal.SIGKILL)


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), (REVISION, REVISION), ("auto", REVISION)])
def test_the_official_client_drives_the_stack(stack: Installation, environment: Path, mode: str, revision: str) -> None:
    program = REPOSITORY / "tests" / "acceptance" / "mcp_program.py"
    done = subprocess.run(
        [environment / "bin" / "python", program, address(stack) + PATH, mode],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["revision"] == revision
    assert {"spawn_run", "memory", "agentdef", "register_agent"} <= set(got["tools"])
    assert (got["talk"]["status"], got["answered"]["status"]) == ("completed", "completed")
    assert (got["asked"], got["is_error"]) == (["Shall I?"], True)
    assert got["progress"]
    assert got["progress"] == sorted(got["progress"])


class Receiver(BaseHTTPRequestHandler):
    """Takes events: echoes challenges, and keeps what comes."""

    got: list[Mapping[str, Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("type") == "verification":
            answer = json.dumps({"challenge": body["challenge"]}).encode()
        else:
            self.got.append(body)
            answer = b"{}"
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def receiving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/events"
    finally:
        server.shutdown()
        server.server_close()


def test_the_api_dies_in_the_middle_of_a_task_a_session_and_subscriptions(stack: Installation) -> None:
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    session = httpx.post(address(stack) + PATH, json=begin, timeout=WAIT_S).headers["mcp-session-id"]
    cursor = stateless(stack, "events/poll", name="run.ended", cursor=None)["cursor"]
    with receiving() as url:
        delivery = {"mode": "webhook", "url": url, "secret": SECRET}
        stateless(stack, "events/subscribe", name="run.ended", arguments={"agent": "puppet"}, delivery=delivery)
        arguments = {"agent": "puppet", "prompt": json.dumps(QUESTION)}
        task = stateless(stack, "tools/call", name="spawn_run", arguments=arguments)
        run_id = task["taskId"].partition(".")[0]
        asked = eventually(
            lambda: stateless(stack, "tasks/get", taskId=task["taskId"]), lambda one: one["status"] == "input_required"
        )

        kill_api(stack)

        again = eventually(lambda: stateless(stack, "tasks/get", taskId=task["taskId"]), lambda one: True)
        assert again["inputRequests"] == asked["inputRequests"]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        alive = httpx.post(address(stack) + PATH, json=ping, headers={"mcp-session-id": session}, timeout=WAIT_S)
        assert (alive.status_code, alive.json()["result"]) == (200, {})
        [question] = again["inputRequests"]
        answers = {question: {"action": "accept", "content": {"answer": "yes"}}}
        stateless(stack, "tasks/update", taskId=task["taskId"], inputResponses=answers)
        ended = eventually(
            lambda: stateless(stack, "tasks/get", taskId=task["taskId"]), lambda one: one["status"] == "completed"
        )
        assert ended["result"]["structuredContent"]["status"] == "completed"

        def seen() -> list[str]:
            page = stateless(stack, "events/poll", name="run.ended", arguments={"run_id": run_id}, cursor=cursor)
            return [event["eventId"] for event in page["events"]]

        [event_id] = eventually(seen, lambda events: len(events) >= 1)
        eventually(lambda: [one["eventId"] for one in Receiver.got], lambda events: event_id in events)
        assert {one["data"]["run_id"] for one in Receiver.got if one["eventId"] == event_id} == {run_id}


def test_a_thin_client_goes_on_over_the_death_of_the_api_and_starts_one_run(stack: Installation) -> None:
    question = f"Shall I? {uuid.uuid4()}"
    prompt = json.dumps([{"tool": "Interruption", "input": {"op": "ask", "question": question}}])
    with subprocess.Popen(
        stack.command("mcp", "--upstream", address(stack)),
        cwd=stack.project,
        env=stack.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        call = {"name": "spawn_run", "arguments": {"agent": "puppet", "prompt": prompt}}

        def send(message: Mapping[str, Any]) -> None:
            assert client.stdin is not None
            client.stdin.write(json.dumps(message) + "\n")
            client.stdin.flush()

        send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
        spawn = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        send(spawn)
        assert json.loads(client.stdout.readline())["id"] == 0

        def questions() -> list[Any]:
            answer = httpx.get(f"{address(stack)}/v1/interrupts", timeout=WAIT_S)
            assert answer.status_code == 200, answer.text
            listed = answer.json()["interrupts"]
            return [one for one in listed if one["question"] == question]

        [asked] = eventually(questions, lambda found: len(found) == 1)
        kill_api(stack)
        eventually(questions, lambda found: len(found) == 1)
        path = f"/v1/runs/{asked['run_id']}/interrupts/{asked['interrupt_id']}/resolve"
        answered = httpx.post(address(stack) + path, json={"answer": "yes"}, timeout=WAIT_S)
        assert answered.status_code == 200, answered.text
        got = json.loads(client.stdout.readline())
        if "error" in got:  # the api was away for longer than the client tries; the same message is the same call
            assert got["error"]["code"] == -32000, got
            send(spawn)
            got = json.loads(client.stdout.readline())
        client.stdin.close()
        result = got["result"]["structuredContent"]
        assert (result["status"], result["run_id"]) == ("completed", asked["run_id"])
