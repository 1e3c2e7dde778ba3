"""The thin client of MCP: messages side by side, broken connections, sessions that are begun again, and odd lines."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from loomlog.services.cli.mcp.thin_client import RECONNECT_S, ThinClient

Answer = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}


class Api:
    """An API; `answer` decides, after the handshake."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.requests: list[httpx.Request] = []
        self.sessions = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        message = json.loads(request.content)
        if message["method"] == "initialize":
            self.sessions += 1
            return reply(message["id"], {"protocolVersion": "x"}, {"mcp-session-id": f"s{self.sessions}"})
        answer = reply(message["id"], {"of": message["method"]}) if self.answer is None else self.answer(request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def serve(self, *messages: Any) -> tuple[dict[Any, Any], list[float]]:
        """Pass messages on; return the answers by id, and the pauses."""
        lines = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in messages)
        written, pauses = list[bytes](), list[float]()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(0)

        async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(self)) as client:
            await ThinClient(client, written.append, sleep=sleep).run(io.BytesIO(lines))
        answers = [json.loads(line) for line in written]
        return {one.get("id", one.get("method")): one for one in answers}, pauses


def reply(request_id: Any, result: Any, headers: dict[str, str] | None = None, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json={"jsonrpc": "2.0", "id": request_id, "result": result}, headers=headers)


def call(request_id: Any, method: str = "tools/list", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def test_messages_name_the_session_of_the_handshake() -> None:
    api = Api()
    answers, _ = await api.serve(HELLO, call("a"), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert answers["a"]["result"] == {"of": "tools/list"}
    assert [one.headers.get("mcp-session-id") for one in api.requests] == [None, "s1"]


async def test_a_long_call_holds_up_nothing() -> None:
    ended = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        if message["method"] == "tools/call":
            await ended.wait()
        else:
            ended.set()
        return reply(message["id"], {})

    answers, _ = await Api(answer).serve(HELLO, call(1, "tools/call", name="spawn_run"), call(2, "ping"))
    assert {0, 1, 2} == answers.keys()


async def test_a_broken_connection_is_made_again_and_the_call_sent_under_its_key() -> None:
    failures = [httpx.ConnectError("down"), httpx.ReadError("cut")]

    def answer(request: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return reply(1, {"done": True})

    api = Api(answer)
    answers, pauses = await api.serve(HELLO, call(1, "tools/call", name="memory"))
    assert answers[1]["result"] == {"done": True}
    assert pauses == [0.0, *RECONNECT_S[:3]]
    keys = [one.headers["idempotency-key"] for one in api.requests[1:]]
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_an_api_that_stays_away_is_an_error_for_each_request() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("down")

    answers, pauses = await Api(answer).serve(HELLO, call(1))
    assert "does not answer" in answers[1]["error"]["message"]
    assert pauses == [0.0, *RECONNECT_S]


async def test_a_session_that_is_unknown_is_begun_again() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        if request.headers["mcp-session-id"] == "s1":
            return httpx.Response(404, json={"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32001}})
        return reply(message["id"], {"done": True})

    api = Api(answer)
    answers, _ = await api.serve(HELLO, call(1), call(2))
    assert answers[1]["result"] == answers[2]["result"] == {"done": True}
    assert api.sessions == 2, "both begin it together"


async def test_events_of_a_run_come_before_its_answer() -> None:
    body = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\n: keepalive\n\ndata: {"id":1}\n\n'
    api = Api(lambda request: httpx.Response(200, content=body, headers={"content-type": "text/event-stream"}))
    answers, _ = await api.serve(HELLO, call(1, "tools/call", name="spawn_run"))
    assert list(answers) == [0, "notifications/x", 1]


async def test_a_message_of_a_stream_ends_with_its_line_and_not_at_another_separator() -> None:
    body = 'data: {"id":1,"result":{"text":"one\u2028two\x85three"}}\n\n'.encode()
    api = Api(lambda request: httpx.Response(200, content=body, headers={"content-type": "text/event-stream"}))
    answers, _ = await api.serve(HELLO, call(1, "tools/call", name="spawn_run"))
    assert answers[1]["result"]["text"] == "one\u2028two\x85three"


async def test_a_refusal_of_the_api_is_an_error_of_the_protocol() -> None:
    api = Api(lambda request: httpx.Response(401, json={"code": "unauthorized", "error": "who are you"}))
    answers, _ = await api.serve(HELLO, call(1))
    assert answers[1]["error"]["message"] == "who are you"
    assert answers[1]["error"]["data"]["code"] == "unauthorized"


async def test_lines_that_are_no_messages_are_told_and_left_out() -> None:
    answers, _ = await Api().serve(b"{\n", b"\n", b"[]\n", HELLO, call(1))
    assert answers[None]["error"]["code"] == -32700
    assert answers[1]["result"]


async def test_the_stateless_era_needs_no_session_and_says_it_in_headers() -> None:
    api = Api()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    await api.serve(call(1, "tools/call", name="memory", _meta=meta))
    (request,) = api.requests
    headers = ("mcp-protocol-version", "mcp-method", "mcp-name")
    assert [request.headers.get(name) for name in headers] == ["2026-07-28", "tools/call", "memory"]
    assert "mcp-session-id" not in request.headers


async def test_a_cancel_of_a_session_goes_to_the_api() -> None:
    api = Api(lambda request: httpx.Response(202))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
    hello = json.dumps(HELLO).encode() + b"\n"
    async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(api)) as http:
        client = ThinClient(http, lambda line: None)
        await client.pass_on(hello)
        await client.pass_on(json.dumps(cancel).encode())
    assert (json.loads(api.requests[-1].content), api.requests[-1].headers["mcp-session-id"]) == (cancel, "s1")


async def test_a_cancel_without_a_session_leaves_the_answer() -> None:
    arrived, is_left = asyncio.Event(), asyncio.Event()

    async def never(request: httpx.Request) -> httpx.Response:
        arrived.set()
        try:
            return await asyncio.Future()
        finally:
            is_left.set()

    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    asked = call("a", "tasks/get", taskId="r_a.0.1", _meta=meta)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
    api = Api(never)
    async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(api)) as http:
        client = ThinClient(http, lambda line: None)
        task = asyncio.create_task(client.pass_on(json.dumps(asked).encode()))
        await arrived.wait()
        await client.pass_on(json.dumps(cancel).encode())
        async with asyncio.timeout(30):
            await is_left.wait()
        await asyncio.wait({task})
    assert api.requests[0].headers["mcp-name"] == "r_a.0.1"
