"""Tools of an MCP server and of an OpenAPI file on a whole stack: shown, called, held to rules, lost, after a run."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.second_stack import notes_of
from tests.acceptance.test_agent_loop import finished
from tests.acceptance.test_definitions import kill_owner
from tests.acceptance.test_families import api
from tests.connectors.mcp.authorization_server import GuardedServer

pytestmark = pytest.mark.stack
WAIT_S = 60.0


@pytest.fixture(scope="module")
def place(second_stack: Installation) -> tuple[Installation, Path]:
    """The stack, and where its servers note what they are told."""
    return second_stack, notes_of(second_stack)


def ask_clerk(client: httpx.Client, text: str, agent: str = "clerk", **body: Any) -> str:
    """Return what the agent answers."""
    frames = finished(client, agent=agent, prompt=text, **body)
    return "".join(data["text"] for event, data in frames if event == "text")


def start(client: httpx.Client, text: str, agent: str = "clerk") -> str:
    spawn = {"agent": agent, "prompt": text}
    batch = client.post("/v1/runs:batch", json={"spawns": [spawn], "mode": "detach"}).json()
    return str(batch["results"][0]["run_id"])


def wait_for(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < deadline
    return found


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    row: dict[str, Any] = wait_for(
        lambda: (row := client.get(f"/v1/runs/{run_id}").json()).get("status") in ("completed", "failed") and row
    )
    return row


def noted(notes: Path, text: str) -> int:
    return notes.read_text().splitlines().count(text)


def test_the_tools_of_a_server_are_listed_and_called(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    with api(stack) as client:
        assert ask_clerk(client, "small") == "noted small"
    servers = {one["name"]: one for one in stack.loomlog("mcp", "servers", "ls", "--json").json["servers"]}
    assert (servers["desk"]["tool_count"], servers["desk"]["error"]) == (1, "")
    assert "127.0.0.1" in servers["away"]["error"]
    [tool] = stack.loomlog("mcp", "servers", "tools", "desk", "--json").json["tools"]
    assert (tool["name"], tool["effect"]) == ("mcp__desk__echo", "unsafe")
    assert noted(notes, "small") == 1


def test_an_operation_of_an_openapi_file_is_a_tool(place: tuple[Installation, Path]) -> None:
    stack, _ = place
    with api(stack) as client:
        assert json.loads(ask_clerk(client, "go", agent="prober"))["ok"] is True


def test_a_call_is_held_to_the_rules(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    with api(stack) as client:
        assert ask_clerk(client, "secret").startswith("failed: ")
        run_id = start(client, "large")
        [asked] = wait_for(lambda: stack.loomlog("approvals", "ls", "--run-id", run_id, "--json").json["approvals"])
        assert noted(notes, "large") == 0
        stack.loomlog("approvals", "approve", run_id, asked["approval_id"])
        assert ended(client, run_id)["status"] == "completed"
    assert (noted(notes, "secret"), noted(notes, "large")) == (0, 1)


def test_a_call_that_is_lost_with_its_runtime_is_not_made_again(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    with api(stack) as client:
        run_id = start(client, "hang")
        wait_for(lambda: noted(notes, "hang"))
        kill_owner(stack)
        assert ended(client, run_id)["status"] == "completed"
        assert "outcome unknown" in client.get(f"/v1/runs/{run_id}/stream").text
    assert noted(notes, "hang") == 1


def test_a_hook_calls_a_tool_after_the_run_unless_a_rule_forbids_it(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    hooks = [
        {"kind": "mcp.call", "server": "desk", "tool": "echo", "args": {"text": text}}
        for text in ("secret", "after {{run.status}}")
    ]
    with api(stack) as client:
        ask_clerk(client, "small", on_complete=hooks)
        wait_for(lambda: noted(notes, "after completed"))
    assert noted(notes, "secret") == 0


def question_of(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """Return the open question of a run, once there is one."""
    [question] = wait_for(
        lambda: client.get(f"/v1/runs/{run_id}/interrupts", params={"status": "pending"}).json()["interrupts"]
    )
    return dict(question)


def test_a_server_asks_a_person_in_the_middle_of_a_call(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    with api(stack) as client:
        run_id = start(client, "blue paint", agent="painter")
        question = question_of(client, run_id)
        assert question["question"] == "The MCP server painter asks: Which colour?"
        where = f"/v1/runs/{run_id}/interrupts/{question['interrupt_id']}/resolve"
        refused = client.post(where, json={"answer": "green"})
        assert (refused.status_code, "colour" in refused.text) == (422, True)
        assert client.post(where, json={"answer": "blue"}).status_code == 200
        assert ended(client, run_id)["status"] == "completed"
        answered = client.get(f"/v1/runs/{run_id}/stream").text
        assert "accept" in answered
        assert "blue" in answered
    assert noted(notes, "blue paint") == 1


def test_a_question_is_closed_with_the_process_that_held_its_call(place: tuple[Installation, Path]) -> None:
    stack, notes = place
    with api(stack) as client:
        held, waiting = start(client, "red paint", agent="painter"), start(client, "patient paint", agent="patient")
        questions = [question_of(client, run_id) for run_id in (held, waiting)]
        kill_owner(stack)
        assert ended(client, held)["status"] == "completed"
        assert "outcome unknown" in client.get(f"/v1/runs/{held}/stream").text
        closed, still_open = (
            client.get(f"/v1/runs/{one['run_id']}/interrupts", params={"status": "all"}).json()["interrupts"][0][
                "status"
            ]
            for one in questions
        )
        assert (closed, still_open) == ("cancelled", "pending")
        where = f"/v1/runs/{waiting}/interrupts/{questions[1]['interrupt_id']}/resolve"
        assert client.post(where, json={"answer": '{"colour": "red"}'}).status_code == 200
        assert ended(client, waiting)["status"] == "completed"
        assert "kept" in client.get(f"/v1/runs/{waiting}/stream").text
    assert (noted(notes, "red paint"), noted(notes, "patient paint")) == (1, 1)


def server_row(stack: Installation, name: str) -> dict[str, Any]:
    rows = stack.loomlog("mcp", "servers", "ls", "--json").json["servers"]
    return dict(next(row for row in rows if row["name"] == name))


def test_a_person_grants_access_and_the_runtime_renews_it(
    place: tuple[Installation, Path], guarded: GuardedServer
) -> None:
    stack, _ = place
    with api(stack) as client:
        wait_for(lambda: server_row(stack, "guarded")["authorization"] == "needs_authorization")
        assert "loomlog mcp servers login guarded" in server_row(stack, "guarded")["error"]
        begun = stack.loomlog("mcp", "servers", "login", "guarded", "--no-open", "--json").json
        with httpx.Client(timeout=WAIT_S) as browser:
            page = browser.get(begun["url"])
            link = page.text.split('href="')[1].split('"')[0].replace("&amp;", "&")
            leads = browser.get(httpx.URL(begun["url"]).join(link))
            where = httpx.URL(begun["url"]).join("/v1/_mcp_oauth/callback")
            done = browser.get(where, params=guarded.consent(leads.headers["location"]))
        assert (done.status_code, "Access granted" in done.text) == (200, True)
        wait_for(lambda: ask_clerk(client, "hello", agent="guest") == "hello")
        guarded.tokens.clear()  # the server takes the token no longer: the runtime has it renewed
        assert ask_clerk(client, "again", agent="guest") == "again"
    assert [form["grant_type"] for form in guarded.forms] == ["authorization_code", "refresh_token"]
    assert server_row(stack, "guarded")["authorization"] == "granted"
