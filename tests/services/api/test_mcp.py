"""MCP over HTTP: handshakes, sessions that outlive a process, the stateless era, tools, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from loomlog.services.api.mcp.messages import (
    CAPABILITIES_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMETERS,
    INVALID_REQUEST,
    NO_SUCH_METHOD,
    NOT_PERMITTED,
    PARSE_ERROR,
    REVISION_KEY,
    UNSUPPORTED_REVISION,
)
from loomlog.services.api.mcp.sessions import Sessions
from tests.services.api.serving import Served, served
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, ADMIN_CALLER, IVY, READER, until
from tests.services.entities import NOW_MS

PATH = "/v1/_mcp"
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        made.service.mcp_sessions = Sessions(None, clock_ms=lambda: NOW_MS)
        yield made


async def post(here: Served, message: Any, caller: Any = ACME, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await here.client(caller).post(PATH, json=message, headers=named)


async def begin(here: Served, caller: Any = ACME, **hello: Any) -> str:
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**HELLO, **hello}}
    return (await post(here, message, caller)).headers["mcp-session-id"]


async def ask(here: Served, method: str, caller: Any = ACME, session: str = "", **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": "a", "method": method, "params": params}
    answer = await post(here, message, caller, mcp_session_id=session or await begin(here, caller))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["id"] == "a"
    return body


async def names(here: Served, caller: Any) -> set[str]:
    return {tool["name"] for tool in (await ask(here, "tools/list", caller))["result"]["tools"]}


def stateless(method: str, revision: str = "2026-07-28", **params: Any) -> dict[str, Any]:
    meta = {REVISION_KEY: revision, CAPABILITIES_KEY: {}}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25"), (None, "2025-11-25")],
)
async def test_a_handshake_agrees_on_a_revision(here: Served, offered: Any, agreed: str) -> None:
    params = {**HELLO, "protocolVersion": offered}
    answer = await post(here, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    result = answer.json()["result"]
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == (agreed, "loomlog")
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert answer.headers["mcp-session-id"]


async def test_tools_have_a_description_and_an_object_schema(here: Served) -> None:
    tools = (await ask(here, "tools/list", ADMIN_CALLER))["result"]["tools"]
    assert {"spawn_run", "spawn_runs", "channel", "channeldef", "publish_channel", "context"} <= {
        tool["name"] for tool in tools
    }
    for tool in tools:
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"].get("properties") is not None


async def test_tools_that_a_caller_may_not_call_are_hidden_and_refused(here: Served) -> None:
    assert "channel" in await names(here, ACME)
    assert "publish_channel" not in await names(here, READER)
    result = (await ask(here, "tools/call", READER, name="publish_channel", arguments={"channel": "a", "payload": 1}))[
        "result"
    ]
    assert result["isError"]
    assert "insufficient_scope" in result["content"][0]["text"]
    assert "publish_channel" not in await names(here, IVY)


async def test_a_session_outlives_the_process_and_belongs_to_its_principal(here: Served) -> None:
    session = await begin(here)
    again = Sessions(here.service.mcp_sessions._key, clock_ms=lambda: NOW_MS)
    assert again.open(session, ACME.tenant, ACME.subject) is not None
    assert again.open(session, ACME.tenant, "somebody else") is None
    later = Sessions(here.service.mcp_sessions._key, clock_ms=lambda: NOW_MS + 10**12)
    assert later.open(session, ACME.tenant, ACME.subject) is None
    for bad in ("dead", session[:-2], "ä", "a" * 5_000):
        answer = await post(here, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, mcp_session_id=bad.encode().hex())
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, NOT_PERMITTED)


async def test_ping_and_notifications(here: Served) -> None:
    session = await begin(here)
    assert (await ask(here, "ping", session=session))["result"] == {}
    answer = await post(here, {"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session)
    assert (answer.status_code, answer.content) == (202, b"")
    assert (await here.client(ACME).delete(PATH)).status_code == 204
    assert (await here.client(ACME).get(PATH)).status_code == 405


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", PARSE_ERROR),
        (b"", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "method": "tools/list"}', PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', INVALID_PARAMETERS),
        (b"[" * 10_000, PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "par', PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_message_of_another_form_is_an_error_of_the_protocol(here: Served, body: bytes, code: int) -> None:
    answer = await here.client(ACME).post(PATH, content=body, headers={"content-type": "application/json"})
    assert answer.json()["error"]["code"] == code
    assert answer.status_code in (200, 400)


async def test_a_frame_of_10_mb_is_refused_in_the_form_of_the_protocol(here: Served) -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "' + b"x" * 10_000_000 + b'"}}'
    answer = await here.client(ACME).post(PATH, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, INVALID_REQUEST)


async def test_deep_arguments_are_refused_or_taken_but_break_nothing(here: Served) -> None:
    session = await begin(here)
    for depth in (100, 900, 1_100):
        deep = '{"a":' * depth + "1" + "}" * depth
        call = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"context","arguments":{deep}}}}}'
        headers = {"content-type": "application/json", "mcp-session-id": session}
        answer = (await here.client(ACME).post(PATH, content=call.encode(), headers=headers)).json()
        assert answer.get("result", {}).get("isError") or answer["error"]["code"] == PARSE_ERROR
    assert (await ask(here, "ping", session=session))["result"] == {}


async def test_two_initializes_are_two_sessions_and_both_live(here: Served) -> None:
    first, second = await begin(here), await begin(here)
    assert first != second
    for session in (first, second):
        assert (await ask(here, "ping", session=session))["result"] == {}


async def test_a_repeated_id_is_the_same_call_and_another_call_under_it_is_refused(here: Served) -> None:
    session = await begin(here)
    one, other = {"agent": "soaker", "prompt": "one"}, {"agent": "soaker", "prompt": "another"}
    calls = [await ask(here, "tools/call", session=session, name="spawn_run", arguments=each) for each in (one, one)]
    runs = {call["result"]["structuredContent"]["run_id"] for call in calls}
    assert len(runs) == len(here.world.commands()) == 1
    refused = (await ask(here, "tools/call", session=session, name="spawn_run", arguments=other))["result"]
    assert (refused["isError"], "idempotency_key_reused" in refused["content"][0]["text"]) == (True, True)
    elsewhere = await ask(here, "tools/call", name="spawn_run", arguments=one)
    assert elsewhere["result"]["structuredContent"]["run_id"] not in runs


@pytest.mark.parametrize("request_id", [99, "a", None, True, {}])
async def test_a_cancel_of_an_unknown_request_changes_nothing(here: Served, request_id: Any) -> None:
    session = await begin(here)
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    answer = await post(here, message, mcp_session_id=session)
    assert (answer.status_code, answer.content) == (202, b"")
    assert here.world.commands() == []


async def test_a_cancel_ends_the_run_of_its_call_whichever_process_gets_it(here: Served) -> None:
    session = await begin(here)
    params = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    call = {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params}
    waiting = asyncio.create_task(post(here, call, mcp_session_id=session))
    await until(lambda: here.world.states)
    here.service.mcp_calls.clear()  # as in another process
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}}
    assert (await post(here, message, mcp_session_id=session)).status_code == 202
    async with asyncio.timeout(WAIT_S):
        result = (await waiting).json()["result"]
    assert result["structuredContent"]["status"] == "cancelled"


async def test_answers_to_no_question_change_nothing(here: Served) -> None:
    session = await begin(here)
    for request_id in ("question:r_none:intr_none", "question:", "x", 7):
        answer = {"jsonrpc": "2.0", "id": request_id, "result": {"action": "accept", "content": {"answer": "yes"}}}
        assert (await post(here, answer, mcp_session_id=session)).status_code == 202
    refusal = {"jsonrpc": "2.0", "id": "question:r_a:b", "error": {"code": -1, "message": "no"}}
    assert (await post(here, refusal, mcp_session_id=session)).status_code == 202


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("http://evil.localhost.example", 403),
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("vscode-webview://abc", 200),
    ],
)
async def test_pages_of_other_sites_are_refused(here: Served, origin: str, status: int) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    answer = await post(here, message, origin=origin)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status == 403)


async def test_cheap_calls_never_wait_for_long_ones(here: Served) -> None:
    session = await begin(here)
    params = {"name": "spawn_run", "arguments": {"agent": "silent", "prompt": "go"}}
    calls = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params} for number in range(17)]
    waiting = [asyncio.create_task(post(here, call, mcp_session_id=session)) for call in calls]
    await until(lambda: len(here.world.states) == 16)
    assert (await ask(here, "tools/call", session=session, name="context", arguments={"op": "help"}))["result"]
    assert len(here.world.commands()) == 16
    here.world.reply(here.world.commands()[0].run_id)
    await until(lambda: len(here.world.states) == 17)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_unknown_methods_and_tools(here: Served) -> None:
    assert (await ask(here, "walk/dog"))["error"]["code"] == NO_SUCH_METHOD
    assert (await ask(here, "tools/call", name="teleport", arguments={}))["error"]["code"] == INVALID_PARAMETERS
    assert (await ask(here, "tools/call", name=1))["error"]["code"] == INVALID_PARAMETERS
    result = (await ask(here, "tools/call", name="channel", arguments={"op": "dance"}))["result"]
    assert result["isError"]
    assert "expected one of" in result["content"][0]["text"]


async def test_spawn_run_without_an_agent_says_what_is_missing(here: Served) -> None:
    result = (await ask(here, "tools/call", name="spawn_run", arguments={"prompt": "go"}))["result"]
    assert result["isError"]
    assert "agent" in result["content"][0]["text"]


async def test_the_stateless_era(here: Served) -> None:
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "server/discover"}
    answer = await post(here, stateless("server/discover"), **headers)
    result = answer.json()["result"]
    assert result["resultType"] == "complete"
    assert "2026-07-28" in result["supportedVersions"]
    assert (result["cacheScope"], result["ttlMs"] > 0) == ("private", True)
    assert "mcp-session-id" not in answer.headers
    call = stateless("tools/call", name="context", arguments={"op": "help"})
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "context"}
    result = (await post(here, call, **headers)).json()["result"]
    assert (result["isError"], result["resultType"]) == (False, "complete")
    assert "channels" in result["structuredContent"]["topics"]


@pytest.mark.parametrize(
    ("message", "headers", "code"),
    [
        (stateless("tools/list"), {"mcp_method": "tools/call"}, HEADER_MISMATCH),
        (stateless("tools/list"), {}, HEADER_MISMATCH),
        (stateless("tools/list", "2031-01-01"), {"mcp_method": "tools/list"}, HEADER_MISMATCH),
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, {"mcp_method": "tools/list"}, INVALID_PARAMETERS),
        (stateless("tools/walk"), {"mcp_method": "tools/walk"}, NO_SUCH_METHOD),
    ],
)
async def test_a_stateless_request_agrees_with_its_headers(
    here: Served, message: Any, headers: dict[str, str], code: int
) -> None:
    answer = await post(here, message, mcp_protocol_version="2026-07-28", **headers)
    assert answer.json()["error"]["code"] == code
    assert answer.json()["id"] == 7
    assert answer.status_code == (404 if code == NO_SUCH_METHOD else 400)


async def test_a_revision_that_is_not_served_is_named(here: Served) -> None:
    answer = await post(here, stateless("tools/list", "2031-01-01"), mcp_protocol_version="2031-01-01")
    error = answer.json()["error"]
    assert (error["code"], error["data"]["requested"]) == (UNSUPPORTED_REVISION, "2031-01-01")
