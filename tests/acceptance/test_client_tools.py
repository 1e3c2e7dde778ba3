"""A client's tool over a real WebSocket: the example, a connection that drops in the middle, and frames of garbage."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.acceptance.installation import REPOSITORY, Installation

pytestmark = pytest.mark.stack

PROGRAM = REPOSITORY / "docs" / "examples" / "serve_client_tool.py"
SUBPROTOCOL = Subprotocol("loomcycle.client-tools.v1")
HELLO = {"type": "hello", "tools": [{"name": "add_note", "input_schema": {"type": "object"}}]}
WAIT_S = 30.0


@contextmanager
def client(stack: Installation) -> Iterator[ClientConnection]:
    """A client that has said hello."""
    url = f"ws://{stack.environ['LOOMLOG_LISTEN_ADDR']}/v1/client-tools"
    with connect(url, subprotocols=[SUBPROTOCOL]) as socket:
        socket.send(json.dumps(HELLO))
        assert said(socket)["type"] == "hello_ok"
        yield socket


def said(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(timeout=WAIT_S))
    return found


@contextmanager
def run(stack: Installation) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """A run of the agent with the tool: its id and its frames."""
    url, body = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}/v1/runs", {"agent": "secretary", "prompt": "buy milk"}
    with httpx.stream("POST", url, json=body, timeout=WAIT_S) as answer:
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        frames = map(json.loads, lines)
        yield next(frame["run_id"] for frame in frames if "run_id" in frame), frames


def asked(stack: Installation, path: str) -> Any:
    return httpx.get(f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}/v1/{path}", timeout=WAIT_S).json()


def result(frames: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """What the one tool call of the run gave; reads to the end."""
    (found,) = [frame for frame in frames if frame.get("type") == "tool_result"]
    return found


def test_an_agent_uses_a_tool_of_the_example(stack: Installation, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    url = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--url", url, "--notes", str(notes)],
        stdout=subprocess.PIPE,
        text=True,
        # The program stands alone: nothing of this tree may be imported.
        env={"PATH": os.environ.get("PATH", "")},
        cwd="/",
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving: add_note\n"
        with run(stack) as (_, frames):
            assert result(frames)["text"] == "there are 1 notes now"
        assert "done: " in process.stdout.readline()
    finally:
        process.kill()
        process.wait()
    assert notes.read_text() == "buy milk\n"


def test_a_connection_that_drops_during_a_call_is_an_unknown_outcome_and_the_call_is_not_made_again(
    stack: Installation,
) -> None:
    with client(stack) as socket, run(stack) as (run_id, frames):
        invoked = said(socket)
        assert (invoked["type"], invoked["tool"], invoked["input"]) == ("invoke", "add_note", {"text": "buy milk"})
        assert invoked["run_id"] == run_id
        socket.socket.shutdown(SHUT_RDWR)  # without a word of farewell
        with client(stack) as again:
            returned = result(frames)
            with pytest.raises(TimeoutError):
                again.recv(timeout=0)
    assert "outcome unknown: the client disconnected during the call" in returned["text"]
    assert asked(stack, f"runs/{run_id}/replay")["drift"] == []
    events = asked(stack, f"events?run_id={run_id}")["events"]
    (told,) = [event["payload"] for event in events if event["type"] == "ToolReturned"]
    assert (told["outcome"], told["is_error"]) == ("outcome_unknown", True)
    assert [event["type"] for event in events].count("ToolCallRequested") == 1


def test_a_call_while_nobody_is_connected_is_an_error_that_says_so(stack: Installation) -> None:
    with run(stack) as (_, frames):
        assert "no client that offers client__add_note is connected now" in result(frames)["text"]


def test_garbage_and_frames_that_are_too_large_hurt_nobody_else(stack: Installation) -> None:
    with client(stack) as quiet, client(stack) as loud:
        for garbage in ("{", b"\x00", '{"type": "dance"}'):
            loud.send(garbage)
            assert said(loud)["type"] == "error"
        loud.send(json.dumps({"type": "ping"}))
        assert said(loud) == {"type": "pong"}
        loud.send("x" * (1024 * 1024 + 1))
        with pytest.raises(ConnectionClosed) as closed:
            loud.recv(timeout=WAIT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        quiet.send('{"type": "ping"}')
        assert said(quiet) == {"type": "pong"}


def test_a_handshake_without_the_subprotocol_is_refused_with_a_sentence(stack: Installation) -> None:
    with pytest.raises(InvalidStatus) as refused:
        with connect(f"ws://{stack.environ['LOOMLOG_LISTEN_ADDR']}/v1/client-tools"):
            """It is not let in."""
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body or b"")["code"] == "bad_request"
