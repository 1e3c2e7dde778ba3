"""A model of somebody else's: a small OpenAI-compatible server on this machine that reviews one file.

It looks at the conversation it is sent and answers with the next step, streamed: Glob, Grep, Read, Write, and a last
sentence. It knows nothing of loomlog but its wire and the names of the tools it is offered.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.acceptance import lab_wires

STEPS: tuple[tuple[str, dict[str, str]], ...] = (
    ("Glob", {"pattern": "**/*.py"}),
    ("Grep", {"pattern": "shell=True", "output_mode": "content"}),
    ("Read", {"path": "shop/orders.py"}),
)
USAGE = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
KEY = "a-key-of-the-lab"
PLACE = re.compile(r"[\w/]+\.py:\d+")


class LabModel:
    """Serves until `close`. `asked` are the requests it got."""

    def __init__(self, port: int) -> None:
        self.asked: list[dict[str, Any]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked.append({"path": self.path, "authorization": self.headers["authorization"], **body})
                answer = lab_wires.posted(self.path, body, _step)
                if answer is not None:
                    self._send(answer)
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for chunk in _chunks(body["messages"]):
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

            def do_GET(self) -> None:
                self._send(lab_wires.got(self.path))

            def _send(self, answer: lab_wires.Answer) -> None:
                status, media_type, body = answer
                self.send_response(status)
                self.send_header("content-type", media_type)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _chunks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = [str(message["content"]) for message in messages if message["role"] == "tool"]
    following = _step(answers)
    return _spoken(following) if isinstance(following, str) else _called(len(answers), *following)


def _step(answers: list[str]) -> tuple[str, dict[str, str]] | str:
    """What comes after these answers of tools: a call, or a last sentence."""
    step = len(answers)
    if step > len(STEPS):
        return "The review is report.md in out."
    if step == len(STEPS):
        place = PLACE.search(answers[1])
        found = place[0] if place else "nothing"
        return "Write", {"path": "lab.md", "volume": "out", "content": f"# Lab\n\n- {found}\n"}
    return STEPS[step]


def _called(step: int, name: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    text = json.dumps(arguments)
    call = {"index": 0, "id": f"call_{step}", "type": "function", "function": {"name": name, "arguments": text[:5]}}
    rest = {"index": 0, "function": {"arguments": text[5:]}}
    return [
        _chunk({"role": "assistant", "content": f"Step {step}."}),
        _chunk({"tool_calls": [call]}),
        _chunk({"tool_calls": [rest]}),
        _chunk({}, finish_reason="tool_calls"),
        {"choices": [], "usage": USAGE, "model": "lab-1"},
    ]


def _spoken(text: str) -> list[dict[str, Any]]:
    return [
        *(_chunk({"content": word + " "}) for word in text.split()),
        _chunk({}, finish_reason="stop"),
        {"choices": [], "usage": USAGE, "model": "lab-1"},
    ]


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"model": "lab-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
