"""Sessions with servers over HTTP and over standard input and output: good ones, and those that attack."""

import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.mcp import http_transport
from loomlog.connectors.mcp.frames import FRAME_BYTES_MAX
from loomlog.connectors.mcp.http_transport import HttpConnection, HttpNetwork
from loomlog.connectors.mcp.peer import IncomingMessages, NotSent, SessionLost
from loomlog.connectors.mcp.session import Session
from loomlog.connectors.mcp.stdio_transport import StdioConnection, server_environment
from tests.connectors.mcp.peer_server import ECHO, PeerServer, Raw, RpcFailure, result_frame, sse

SCRIPT = str(Path(__file__).with_name("stdio_server.py"))
NETWORK = HttpNetwork(private_hosts=frozenset({"127.0.0.1"}))


@asynccontextmanager
async def http_session(peer: PeerServer, headers=None, changed=None):
    incoming = IncomingMessages(lambda: changed.append(1) if changed is not None else None)
    connection = HttpConnection(NETWORK, peer.url, headers or {}, incoming, concurrency=64)
    session = Session("peer", connection, incoming)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def stdio_session(behaviour: str, changed=None, environment=None):
    incoming = IncomingMessages(lambda: changed.append(1) if changed is not None else None)
    environment = {"PATH": os.environ["PATH"]} if environment is None else environment
    connection = await StdioConnection.open(sys.executable, [SCRIPT, behaviour], environment, incoming)
    session = Session("peer", connection, incoming)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


async def call(peer: PeerServer, answer, **arguments):
    peer.answers["tools/call"] = answer
    async with http_session(peer) as session:
        return await session.call_tool("echo", {"text": "hi", **arguments}, timeout_s=30)


# --- well behaved ----------------------------------------------------------------------------------------------------


async def test_a_server_of_the_handshake_era_lists_and_is_called():
    async with PeerServer() as peer:
        peer.session_id = "s1"
        async with http_session(peer, {"Authorization": "Bearer x"}) as session:
            listed = await session.list_tools()
            result = await session.call_tool("echo", {"text": "hi"}, key="k1")
    assert [tool.name for tool in listed.tools] == ["echo"]
    assert (result.text, result.is_error) == ("hi", False)
    assert peer.methods() == ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    headers, body = peer.requests[-1]
    assert headers["mcp-session-id"] == "s1"
    assert headers["mcp-protocol-version"] == session.revision == "2025-11-25"
    assert headers["authorization"] == "Bearer x"
    assert body["params"]["_meta"] == {"loomlog/idempotencyKey": "k1"}


@pytest.mark.parametrize("failure", [RpcFailure(-32601, "no"), RpcFailure(-32022, "unsupported", status=400)])
async def test_a_server_of_the_stateless_era_is_asked_in_its_way(failure):
    async with PeerServer() as peer:
        peer.answers["initialize"] = lambda request: failure
        peer.answers["server/discover"] = lambda request: {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        async with http_session(peer) as session:
            result = await session.call_tool("echo", {"text": "hi"})
    headers, body = peer.requests[-1]
    assert result.text == "hi"
    assert (headers["mcp-protocol-version"], headers["mcp-method"], headers["mcp-name"]) == (
        "2026-07-28",
        "tools/call",
        "echo",
    )
    assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


async def test_an_answer_may_come_as_events_after_others():
    def answer(request):
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        return sse(progress, changed, result_frame(request, {"content": [{"type": "text", "text": "done"}]}))

    changes: list[int] = []
    async with PeerServer() as peer:
        peer.answers["tools/call"] = answer
        async with http_session(peer, changed=changes) as session:
            assert (await session.call_tool("echo", {"text": "hi"})).text == "done"
    assert changes == [1]


async def test_all_kinds_of_content_are_told():
    image = base64.b64encode(b"png").decode()
    content = [
        {"type": "text", "text": "one"},
        {"type": "image", "mimeType": "image/png", "data": image},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c", "mimeType": "x/y", "blob": "???"}},
        {"type": "novel"},
    ]
    async with PeerServer() as peer:
        result = await call(peer, lambda request: {"content": content, "structuredContent": {"n": 1}, "isError": True})
    lines = result.text.splitlines()
    assert lines[0] == "one"
    assert lines[1].startswith("[image image/png, 3 bytes, sha256 ")
    assert lines[2:5] == ["[link file:///a a]", "[resource file:///b]", "inside"]
    assert "not valid base64" in lines[5]
    assert "'novel'" in lines[6]
    assert json.loads(lines[7]) == {"n": 1}
    assert result.is_error


async def test_structured_content_that_a_text_says_already_is_not_repeated():
    content = [{"type": "text", "text": '{"n": 1}'}]
    async with PeerServer() as peer:
        result = await call(peer, lambda request: {"content": content, "structuredContent": {"n": 1}})
    assert result.text == '{"n": 1}'


async def test_a_question_to_the_user_is_cancelled_and_told():
    asked = {"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": {"message": "Which account?"}}

    async with PeerServer() as peer:
        result = await call(
            peer, lambda request: sse(asked, result_frame(request, {"content": [{"type": "text", "text": "no"}]}))
        )
        while len(peer.requests) < 4:
            await asyncio.sleep(0)
    assert "Which account?" in result.text
    assert {"jsonrpc": "2.0", "id": "q1", "result": {"action": "cancel"}} in [body for _, body in peer.requests]


async def test_input_that_a_stateless_server_needs_is_an_error_that_says_so():
    needed = {"q": {"method": "elicitation/create", "params": {"message": "Which account?"}}}
    async with PeerServer() as peer:
        result = await call(peer, lambda request: {"resultType": "input_required", "inputRequests": needed})
    assert result.is_error
    assert "Which account?" in result.text


async def test_an_error_of_a_call_is_a_result_for_the_model():
    async with PeerServer() as peer:
        result = await call(peer, lambda request: RpcFailure(-32602, "text is missing"))
    assert result.is_error
    assert "text is missing" in result.text


async def test_pages_are_followed():
    def page(request):
        cursor = request["params"].get("cursor")
        tool = {"name": f"t{cursor or 0}", "inputSchema": {"type": "object"}}
        return {"tools": [tool], **({} if cursor == "2" else {"nextCursor": str(int(cursor or 0) + 1)})}

    async with PeerServer() as peer:
        peer.answers["tools/list"] = page
        async with http_session(peer) as session:
            listed = await session.list_tools()
            chosen = await session.list_tools(("t1",))
    assert [tool.name for tool in listed.tools] == ["t0", "t1", "t2"]
    assert [tool.name for tool in chosen.tools] == ["t1"]


# --- hostile over HTTP -----------------------------------------------------------------------------------------------

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
HOSTILE = {
    "another id": (lambda r: Raw(200, JSON, [b'{"jsonrpc":"2.0","id":77,"result":{}}']), "answered request 77"),
    "no JSON": (lambda r: Raw(200, JSON, [b"<html>"]), "not JSON"),
    "no result": (lambda r: Raw(200, JSON, [b'{"jsonrpc":"2.0","id":3}']), "neither a result nor an error"),
    "a redirect": (lambda r: Raw(302, {"location": "http://169.254.169.254/"}), "redirects are not followed"),
    "packed": (lambda r: Raw(200, {**JSON, "content-encoding": "gzip"}, [b"x"]), "packed"),
    "a large body": (lambda r: Raw(200, JSON, [b"x" * 65_536] * 80), f"longer than {FRAME_BYTES_MAX}"),
    "100 MB": (lambda r: Raw(200, JSON, [b"x" * 65_536] * 1_600), f"longer than {FRAME_BYTES_MAX}"),
    "100 MB of events": (
        lambda r: Raw(200, EVENTS, [b": " + b"x" * 65_536 + b"\n"] * 1_600),
        "bytes before its answer",
    ),
    "another redirect": (lambda r: Raw(307, {"location": "/mcp"}), "redirects are not followed"),
    "a large event": (lambda r: Raw(200, EVENTS, [b"data: " + b"x" * 65_536] * 80), "an event of more than"),
    "endless events": (
        lambda r: Raw(200, EVENTS, [b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n' * 500] * 30),
        "10000 events and no answer",
    ),
    "no answer in the events": (lambda r: Raw(200, EVENTS, [b": bye\n\n"]), "did not answer tools/call"),
    "nothing": (lambda r: Raw(200), "did not answer tools/call"),
    "nested": (lambda r: Raw(200, JSON, [b'{"a":' * 2_000]), "not JSON"),
    "half a surrogate": (lambda r: Raw(200, JSON, [rb'{"jsonrpc":"2.0","id":3,"result":{"a":"\ud800"}}']), "not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_answer_is_a_clear_error(name):
    answer, message = HOSTILE[name]
    async with PeerServer() as peer:
        with pytest.raises(Permanent, match=message):
            await call(peer, answer)


@pytest.mark.parametrize("kind", [JSON, EVENTS])
async def test_a_connection_that_ends_in_the_middle_of_an_answer_says_so(kind):
    async with PeerServer() as peer:
        with pytest.raises(Transient, match="the connection broke off"):
            await call(peer, lambda request: Raw(200, kind, [b'{"jsonrpc":'], is_cut=True))


async def test_ten_thousand_tools_are_refused():
    async with PeerServer() as peer:
        peer.answers["tools/list"] = lambda request: {"tools": [{**ECHO, "name": f"t{n}"} for n in range(10_000)]}
        async with http_session(peer) as session:
            with pytest.raises(Permanent, match="more than 2000 tools"):
                await session.list_tools()


async def test_a_server_that_never_answers_times_out(monkeypatch):
    async with PeerServer() as peer:
        peer.answers["tools/call"] = lambda request: Raw(200, EVENTS, [b": wait\n\n"], stays_open=True)
        async with http_session(peer) as session:
            with pytest.raises(Transient, match=r"did not answer within 0\.05 s"):
                await session.call_tool("echo", {}, timeout_s=0.05)


async def test_an_answer_whose_stream_stays_open_is_taken(monkeypatch):
    monkeypatch.setattr(http_transport, "DRAIN_S", 0.01)

    def answer(request):
        return Raw(
            200,
            EVENTS,
            [b"data: " + json.dumps(result_frame(request, {"content": []})).encode() + b"\n\n"],
            stays_open=True,
        )

    async with PeerServer() as peer:
        assert (await call(peer, answer)).text == ""


async def test_a_private_address_that_nobody_named_is_not_dialled():
    connection = HttpConnection(HttpNetwork(), "http://127.0.0.1:9/", {}, IncomingMessages(list), concurrency=1)
    with pytest.raises(NotSent, match="no public address"):
        await connection.request("initialize", {}, timeout_s=30)


@pytest.mark.parametrize("url", ["ftp://a.example", "http://u:p@a.example", "nothing"])
def test_an_address_that_cannot_be_called_is_refused(url):
    with pytest.raises(Permanent):
        HttpConnection(NETWORK, url, {}, IncomingMessages(list), concurrency=1)


async def test_a_session_that_the_server_has_lost_was_not_used():
    async with PeerServer() as peer:
        peer.session_id = "s1"
        peer.answers["tools/call"] = lambda request: Raw(404)
        async with http_session(peer) as session:
            with pytest.raises(SessionLost):
                await session.call_tool("echo", {})


@pytest.mark.parametrize(("status", "kind"), [(500, "unavailable"), (429, "unavailable"), (401, "unauthorised")])
async def test_a_status_says_what_kind_of_failure_it_is(status, kind):
    async with PeerServer() as peer:
        with pytest.raises(ConnectorError) as caught:
            await call(peer, lambda request: Raw(status))
    assert caught.value.kind == kind


async def test_a_revision_that_nobody_knows_is_refused():
    async with PeerServer() as peer:
        peer.answers["initialize"] = lambda request: {"protocolVersion": "1999-01-01"}
        with pytest.raises(Permanent, match="speaks revision 1999-01-01"):
            async with http_session(peer):
                pass


async def test_endless_pages_are_refused():
    async with PeerServer() as peer:
        peer.answers["tools/list"] = lambda request: {"tools": [], "nextCursor": "again"}
        async with http_session(peer) as session:
            with pytest.raises(Permanent, match="more than 20 pages"):
                await session.list_tools()


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["good", "greets"])
async def test_a_process_lists_and_is_called(behaviour):
    async with stdio_session(behaviour) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["echo"]
        texts = await asyncio.gather(*(session.call_tool("echo", {"text": str(n)}) for n in range(20)))
    assert [result.text for result in texts] == [str(n) for n in range(20)]
    assert session.revision == "2025-06-18"


async def test_a_process_gets_the_environment_that_it_is_given():
    environment = server_environment({"PATH": os.environ["PATH"], "SECRET": "x"}, {"KEY": "k"})
    async with stdio_session("environment", environment=environment) as session:
        shown = json.loads((await session.call_tool("echo", {})).text)
    assert shown["KEY"] == "k"
    assert "SECRET" not in shown


async def test_a_process_that_changes_its_tools_says_so():
    changes: list[int] = []
    async with stdio_session("changes", changes) as session:
        await session.call_tool("echo", {})
    assert changes == [1]


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("other_id", "answered request 10.., which was not made"),
        ("ends", "it has ended"),
        ("floods", "a line of more than"),
    ],
)
async def test_a_process_that_does_not_speak_the_protocol_is_ended(behaviour, message):
    async with stdio_session(behaviour) as session:
        with pytest.raises(Transient, match=message):
            await session.call_tool("echo", {}, timeout_s=30)
        assert session.is_closed


async def test_a_process_that_floods_with_notifications_slows_nobody():
    async with stdio_session("notifies") as session:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        with pytest.raises(Transient, match=r"within 0\.5 s"):
            await session.call_tool("echo", {}, timeout_s=0.5)
        beating.cancel()
    assert beats > 5


async def test_a_process_that_dies_says_why():
    with pytest.raises(Transient, match="has ended"):
        async with stdio_session("dies"):
            pass


async def test_a_program_that_is_not_there_says_so():
    connection = await StdioConnection.open("/no/such/program", [], {}, IncomingMessages(list))
    with pytest.raises(Transient, match="has ended"):
        await connection.request("initialize", {}, timeout_s=30)
    await connection.close()


async def test_a_call_that_times_out_is_cancelled_and_the_process_stays():
    async with stdio_session("silent") as session:
        with pytest.raises(Transient, match="did not answer within"):
            await session.call_tool("echo", {}, timeout_s=0.05)
        assert not session.is_closed
        assert len((await session.list_tools()).tools) == 1
