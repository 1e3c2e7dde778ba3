"""An API that answers from a script, over httpx.MockTransport: what was asked is kept, what is answered is given.

api = FakeApi()
api.streams += [frames(...), broken(frames(...)), refused(503, "run_pending", ...)]     one for each connection
api.rows["r_1"] = row("r_1")
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from loomlog.services.cli.http import requests
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.main import app

IDS = {"agent_id": "a_1", "run_id": "r_1", "session_id": "s_1"}
POSITION = "loom.run.events/2:17"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One answer: a body that may break off, or a refusal."""

    pieces: Sequence[bytes] = ()
    breaks: bool = False
    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


def frame(name: str, data: dict[str, Any], seq: int | str | None = None) -> bytes:
    """A frame as the API sends it."""
    identity = "" if seq is None else f"id: {seq}\n"
    return f"event: {name}\n{identity}data: {json.dumps(data)}\n\n".encode()


def opening(*, session: bool = True) -> bytes:
    """What every stream begins with."""
    head = frame("session", {"type": "session", "text": "s_1"}) if session else b""
    return head + frame("agent", IDS)


def frames(*pieces: bytes, started: bool = True) -> Scripted:
    """A whole stream."""
    return Scripted(
        pieces=(opening(session=started), *pieces), headers={"x-loomlog-position": POSITION} if started else {}
    )


def broken(answer: Scripted) -> Scripted:
    """The same stream, lost at its end."""
    return Scripted(pieces=answer.pieces, breaks=True, headers=answer.headers)


def refused(status: int, code: str, error: str, **details: Any) -> Scripted:
    return Scripted(status=status, body={**details, "code": code, "error": error})


def row(run_id: str = "r_1", **changes: Any) -> dict[str, Any]:
    """A run as the API shows it."""
    usage = {
        "input_tokens": 1200,
        "output_tokens": 34,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {
        "run_id": run_id,
        "agent_id": "a_1",
        "session_id": "s_1",
        "agent": "assistant",
        "tenant_id": "default",
        "user_id": "default",
        "status": "completed",
        "started_at": "2026-01-31T12:00:00.000Z",
        "completed_at": "2026-01-31T12:00:01.500Z",
        "last_event_at": "2026-01-31T12:00:01.500Z",
        "stop_reason": "end_turn",
        "error": None,
        "error_code": None,
        "usage": usage,
        "cost_micros": 1234,
        "currency": "USD",
        "iterations": 1,
        "tool_calls": 0,
        "provider": "mock",
        "model": "mock-generic",
        "parked": False,
        "quarantined": False,
        "quarantine_error": None,
        "continues_run_id": None,
        "position": "loom.run.events/2:20",
    } | changes


def invoke(*arguments: str, stdin: str = "") -> Any:
    """The result of a command."""
    return CliRunner().invoke(app, list(arguments), input=stdin)


def let_commands_use(monkeypatch: pytest.MonkeyPatch, client: Callable[[], ApiClient]) -> None:
    """Give every command this client, whatever runs on this machine."""
    monkeypatch.setenv("LOOMLOG_BASE_URL", "http://api.test")
    monkeypatch.setattr(requests, "ApiClient", lambda base_url, token: client())


class FakeApi:
    """Answers streams in the order of `streams`, rows from `rows`, the rest from `answers` by method and path."""

    def __init__(self) -> None:
        self.streams: list[Scripted] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.answers: dict[tuple[str, str], Scripted] = {}
        self.pages: dict[str, Callable[[httpx.Request], Any]] = {}
        """Answers that depend on the request, by path."""
        self.asked: list[httpx.Request] = []

    def client(self, token: str = "") -> ApiClient:
        return ApiClient("http://api.test", token, transport=httpx.MockTransport(self._answer))

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(request.content) for request in self.asked if request.url.path == path]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        path = request.url.path
        known = self.answers.get((request.method, path))
        if known is not None:
            return _response(known)
        if path in self.pages:
            return httpx.Response(200, json=self.pages[path](request))
        is_start = request.method == "POST" and (path == "/v1/runs" or path.endswith("/messages"))
        if is_start or path.endswith("/stream"):
            if not self.streams:
                raise httpx.ConnectError("nobody listens", request=request)
            return _response(self.streams.pop(0))
        found = self.rows.get(path.rpartition("/")[2])
        if found is None:
            return httpx.Response(404, json={"code": "not_found", "error": f"there is no {path}"})
        return httpx.Response(200, json=found)


def _response(scripted: Scripted) -> httpx.Response:
    if scripted.status >= 400 or scripted.body:
        body = Scripted(pieces=(json.dumps(scripted.body).encode(),))
        headers = {"content-type": "application/json", **scripted.headers}
        return httpx.Response(scripted.status, headers=headers, stream=_Pieces(body))
    return httpx.Response(200, headers=scripted.headers, stream=_Pieces(scripted))


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._scripted.pieces:
            yield piece
        if self._scripted.breaks:
            raise httpx.ReadError("the connection was reset")
