"""A model that says what a test has written for a prompt: an OpenAI-compatible server on this machine.

    model.play("Count the files", [Step(calls=[("Glob", {"pattern": "*"})]), Step(say=["There are ", gate, "three."])])

The n-th answer after a prompt is its n-th step; a prompt without a script is repeated. A `Gate` among the pieces holds
the stream back until the test opens it: what a page shows in the middle of an answer is seen without any sleep.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GATE_TIMEOUT_S = 60.0
"""A test that failed before it opened a gate leaves no stream behind for longer."""
TOKENS_OF_PROMPT, TOKENS_OF_TURN = 1_240, 380
"""Tokens that are reported: of the first request, and more for every turn."""


class Gate(threading.Event):
    """Holds an answer back until `set`, or until its time is over. `reached` is set when the model has come to it."""

    def __init__(self, timeout_s: float = GATE_TIMEOUT_S) -> None:
        super().__init__()
        self.timeout_s = timeout_s
        self.reached = threading.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer: its text in pieces, then calls of tools. `status` refuses the request instead."""

    say: str | Sequence[str | Gate] = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    status: int = 0
    error: str = "the model refuses"

    @property
    def pieces(self) -> Sequence[str | Gate]:
        return [self.say] if isinstance(self.say, str) else self.say


@dataclass(slots=True)
class ScriptedModel:
    """Serves on a port until `close`."""

    port: int
    _scripts: dict[str, Sequence[Step]] = field(default_factory=dict)
    _server: ThreadingHTTPServer | None = None

    def __post_init__(self) -> None:
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    model._answer(self, body["messages"])
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the turn was cancelled, or its runtime is gone

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def play(self, prompt: str, steps: Sequence[Step]) -> str:
        """Write the script of a prompt, and return the prompt."""
        self._scripts[prompt] = steps
        return prompt

    def close(self) -> None:
        for steps in self._scripts.values():
            for gate in (piece for step in steps for piece in step.pieces if isinstance(piece, Gate)):
                gate.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, messages: Sequence[Mapping[str, Any]]) -> None:
        turn, step = self._next_step(messages)
        handler.send_response(step.status or 200)
        handler.send_header("content-type", "application/json" if step.status else "text/event-stream")
        handler.end_headers()
        if step.status:
            handler.wfile.write(json.dumps({"error": {"message": step.error, "type": "invalid_request"}}).encode())
            return
        for piece in step.pieces:
            if isinstance(piece, Gate):
                piece.reached.set()
                piece.wait(piece.timeout_s)
            else:
                _send(handler, {"content": piece})
        for index, (name, arguments) in enumerate(step.calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": index, "id": f"call_{turn}_{index}", "type": "function", "function": function}
            _send(handler, {"tool_calls": [call]})
        _send(handler, {}, finish="tool_calls" if step.calls else "stop")
        handler.wfile.write(f"data: {json.dumps({'choices': [], 'usage': _usage(turn, step)})}\n\n".encode())
        handler.wfile.write(b"data: [DONE]\n\n")

    def _next_step(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, Step]:
        """Return the turn since the newest prompt that has a script, and the step for it."""
        prompts = [at for at, message in enumerate(messages) if message["role"] == "user"]
        last = prompts[-1] if prompts else 0
        text = _text_of(messages[last])
        turn = sum(message["role"] == "assistant" for message in messages[last:])
        steps = self._scripts.get(text, ())
        return turn, steps[turn] if turn < len(steps) else Step(say=f"You said: {text[:200]}")


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _usage(turn: int, step: Step) -> dict[str, int]:
    said = sum(len(piece) for piece in step.pieces if isinstance(piece, str)) // 4 + 40 * len(step.calls)
    read = TOKENS_OF_PROMPT + turn * TOKENS_OF_TURN
    return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}


def _send(handler: BaseHTTPRequestHandler, delta: Mapping[str, Any], *, finish: str | None = None) -> None:
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    handler.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
    handler.wfile.flush()
