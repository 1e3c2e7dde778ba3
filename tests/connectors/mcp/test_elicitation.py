"""Questions of servers to people: in the middle of a call, or in place of its result; good ones and hostile ones."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.mcp import session as session_module
from loomlog.connectors.mcp.calls_in_flight import HeldCalls
from loomlog.connectors.mcp.elicitation import QUESTIONS_MAX, build_question, read_answer, to_response
from loomlog.connectors.mcp.http_transport import HttpConnection
from loomlog.connectors.mcp.peer import IncomingMessages
from loomlog.connectors.mcp.session import Session
from loomlog.connectors.mcp.stdio_transport import StdioConnection
from loomlog.connectors.protocols import GivenAnswer
from tests.connectors.mcp.peer_server import PeerServer, Raw, RpcFailure
from tests.connectors.mcp.test_sessions import NETWORK, SCRIPT

FORM = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}, "required": ["colour"]}
PARAMS = {"message": "Which colour?", "requestedSchema": FORM}
ASK_MS = 60_000


class Here:
    """A session, and the calls that it holds."""

    def __init__(self, session: Session, held: HeldCalls) -> None:
        self.session = session
        self.held = held

    async def call(self, answers=(), ask_ms=ASK_MS, timeout_s=30.0):
        return await self.session.call_tool("echo", {"text": "hi"}, timeout_s=timeout_s, answers=answers, ask_ms=ask_ms)

    async def answer(self, question, text='{"colour": "red"}', status="resolved"):
        given = GivenAnswer(call_state=question.call_state, status=status, answer=text, is_held=True)
        go_on = self.held.take(given)
        assert go_on is not None
        return await go_on(to_response(given))


@asynccontextmanager
async def over_http(peer: PeerServer):
    incoming, held = IncomingMessages(lambda: None), HeldCalls()
    session = Session("crm", HttpConnection(NETWORK, peer.url, {}, incoming, concurrency=8), incoming, held)
    try:
        await session.open()
        yield Here(session, held)
    finally:
        await held.close()
        await session.close()


@asynccontextmanager
async def over_stdio():
    incoming, held = IncomingMessages(lambda: None), HeldCalls()
    environment = {"PATH": os.environ["PATH"]}
    connection = await StdioConnection.open(sys.executable, [SCRIPT, "asks"], environment, incoming)
    session = Session("crm", connection, incoming, held)
    try:
        await session.open()
        yield Here(session, held)
    finally:
        await held.close()
        await session.close()


def stateless(peer: PeerServer) -> None:
    peer.answers["initialize"] = lambda request: RpcFailure(-32601, "no such method")
    peer.answers["server/discover"] = lambda request: {"supportedVersions": ["2026-07-28"]}


def needs(requests, state="s1"):
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def done(text: str):
    return {"content": [{"type": "text", "text": text}]}


# --- without sessions ------------------------------------------------------------------------------------------------


async def test_a_result_that_needs_input_is_asked_and_the_call_made_again_with_all_answers():
    asked = {key: {"method": "elicitation/create", "params": {**PARAMS, "message": key}} for key in ("a", "b")}
    async with PeerServer() as peer:
        stateless(peer)
        sent = []

        def answer(request):
            sent.append(request["params"])
            return done("mixed") if "inputResponses" in request["params"] else needs(asked)

        peer.answers["tools/call"] = answer
        async with over_http(peer) as here:
            first = (await here.call()).asking
            one = GivenAnswer(call_state=first.call_state, status="resolved", answer='{"colour": "red"}')
            second = (await here.call([one])).asking
            two = GivenAnswer(call_state=second.call_state, status="declined")
            result = await here.call([one, two])
    assert (first.question, first.is_held) == ("The MCP server crm asks: a", False)
    assert json.loads(first.context) == {"server": "crm", "mode": "form", "schema": FORM}
    assert second.question.endswith("b")
    assert result.text == "mixed"
    assert len(sent) == 2, "the second question was known from the first result"
    assert sent[1]["requestState"] == "s1"
    assert sent[1]["inputResponses"] == {
        "a": {"action": "accept", "content": {"colour": "red"}},
        "b": {"action": "decline"},
    }


HOSTILE_INPUT = {
    "nothing asked": ({}, "does not say which"),
    "a sample of the model": ({"a": {"method": "sampling/createMessage", "params": {}}}, "sampling/createMessage"),
    "a list of requests": ([1], "does not say which"),
    "too many questions": (
        {str(n): {"method": "elicitation/create", "params": PARAMS} for n in range(QUESTIONS_MAX + 1)},
        "more than 20 questions",
    ),
    "a form that is not flat": (
        {"a": {"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}}},
        "no object with properties",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_INPUT)
async def test_input_that_people_cannot_be_asked_is_an_error(case):
    requests, problem = HOSTILE_INPUT[case]
    async with PeerServer() as peer:
        stateless(peer)
        peer.answers["tools/call"] = lambda request: needs(requests)
        async with over_http(peer) as here:
            with pytest.raises(Permanent, match=problem):
                await here.call()


async def test_what_a_server_keeps_with_a_question_is_bounded():
    async with PeerServer() as peer:
        stateless(peer)
        asked = {"a": {"method": "elicitation/create", "params": PARAMS}}
        peer.answers["tools/call"] = lambda request: needs(asked, state="x" * 70_000)
        async with over_http(peer) as here:
            with pytest.raises(Permanent, match="keeps more than"):
                await here.call()


# --- in the middle of a call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "response"),
    [
        ('{"colour": "red"}', "resolved", {"action": "accept", "content": {"colour": "red"}}),
        ("", "declined", {"action": "decline"}),
        ("", "timed_out", {"action": "cancel"}),
    ],
)
async def test_a_call_is_held_open_for_the_answer_and_goes_on_with_it(text, status, response):
    async with over_stdio() as here:
        asking = (await here.call()).asking
        assert asking.is_held
        assert json.loads(asking.context)["schema"] == FORM
        assert here.session.in_flight == 1
        result = await here.answer(asking, text, status)
        assert json.loads(result.text) == response
        assert here.session.in_flight == 0


async def test_a_server_may_ask_again_and_a_question_of_two_calls_at_once_is_cancelled():
    async with over_stdio() as here:
        asking = (await here.call()).asking
        result = await here.call()  # whose call it asks in cannot be known
        assert "no person can answer now: Which colour?" in result.text
        assert json.loads((await here.answer(asking)).text)["action"] == "accept"


async def test_a_server_that_asks_for_what_no_person_can_give_is_answered_at_once():
    async with over_stdio() as here:
        result = await here.session.call_tool("echo", {"text": "nested"}, timeout_s=30, ask_ms=ASK_MS)
        assert json.loads(result.text) == {"action": "cancel"}


async def test_without_a_person_a_question_is_cancelled():
    async with over_stdio() as here:
        assert json.loads((await here.call(ask_ms=0)).text.partition("\n")[0]) == {"action": "cancel"}


async def test_a_held_call_whose_server_ends_is_an_error_and_one_that_is_not_here_is_none():
    async with over_stdio() as here:
        asking = (await here.call()).asking
        await here.session.close()
        with pytest.raises(Transient):
            await here.answer(asking)
        given = GivenAnswer(call_state='{"held": "other"}', status="resolved", is_held=True)
        assert here.held.take(given) is None
        assert here.held.take(GivenAnswer(call_state="x", status="resolved", is_held=True)) is None


async def test_a_call_that_never_answers_ends_with_its_time():
    async with over_stdio() as here:
        with pytest.raises(Transient, match=r"within 0\.2 s"):
            await here.session.call_tool("echo", {"text": "silent"}, timeout_s=0.2, ask_ms=ASK_MS)
        assert here.session.in_flight == 0


async def test_a_cancelled_caller_ends_its_call():
    async with over_stdio() as here:
        task = asyncio.create_task(here.session.call_tool("echo", {"text": "silent"}, timeout_s=30, ask_ms=ASK_MS))
        while here.session.in_flight == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while here.session.in_flight:
            await asyncio.sleep(0)


async def test_an_address_that_a_refused_call_needs_is_asked_for_and_the_call_made_again():
    visits = [{"mode": "url", "url": f"https://crm.example/{page}", "message": "Connect"} for page in "ab"]
    async with PeerServer() as peer:
        refusal = RpcFailure(-32042, "not connected", data={"elicitations": visits})
        peer.answers["tools/call"] = lambda request: refusal
        async with over_http(peer) as here:
            first = (await here.call()).asking
            assert (json.loads(first.context)["url"], first.is_held) == ("https://crm.example/a", False)
            one = GivenAnswer(call_state=first.call_state, status="resolved", answer="done")
            second = (await here.call([one])).asking
            assert json.loads(second.context)["url"] == "https://crm.example/b"
            declined = GivenAnswer(call_state=second.call_state, status="declined")
            assert (await here.call([one, declined])).text.startswith("nothing was done")
            assert peer.methods().count("tools/call") == 1
            peer.answers["tools/call"] = lambda request: done("connected")
            two = GivenAnswer(call_state=second.call_state, status="resolved", answer="done")
            assert (await here.call([one, two])).text == "connected"
            assert "inputResponses" not in peer.requests[-1][1]["params"]


@pytest.mark.parametrize("data", [None, {"elicitations": []}, {"elicitations": [1]}, {"elicitations": "x"}])
async def test_a_refusal_that_names_no_address_is_a_result(data):
    async with PeerServer() as peer:
        peer.answers["tools/call"] = lambda request: RpcFailure(-32042, "not connected", data=data)
        async with over_http(peer) as here:
            result = await here.call()
    assert (result.is_error, result.asking) == (True, None)


# --- forms and addresses ---------------------------------------------------------------------------------------------


def ask(**params):
    return build_question("crm", params, timeout_ms=1, state="", held=False)


BAD = {
    "no schema": ({"message": "x"}, "no object with properties"),
    "a nested object": ({"requestedSchema": {**FORM, "properties": {"a": {"type": "object"}}}}, "not flat"),
    "an array of objects": (
        {"requestedSchema": {**FORM, "properties": {"a": {"type": "array", "items": {"properties": {}}}}}},
        "not flat",
    ),
    "51 fields": (
        {"requestedSchema": {"type": "object", "properties": {str(n): {"type": "string"} for n in range(51)}}},
        "more than 50",
    ),
    "a huge schema": (
        {"requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "title": "x" * 30_000}}}},
        "more than 24000 bytes",
    ),
    "a wrong schema": (
        {"requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": "x"}}}},
        "not a JSON Schema",
    ),
    "a script": ({"mode": "url", "url": "javascript:alert(1)"}, "no http"),
    "a password": ({"mode": "url", "url": "https://bank.example@evil.example/"}, "no http"),
    "no address": ({"mode": "url"}, "no http"),
    "a line break": ({"mode": "url", "url": "https://x.example/\n"}, "no http"),
    "a long address": ({"mode": "url", "url": "https://x.example/" + "a" * 2_000}, "more than 2000"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_question_that_is_none_is_refused(case):
    params, problem = BAD[case]
    with pytest.raises(ConnectorError, match=problem):
        ask(**params)


def test_a_question_is_shown_without_control_characters_and_with_its_server():
    question = ask(message="Pay\x1b[2J now?\u202e", requestedSchema=FORM)
    assert question.question == "The MCP server crm asks: Pay [2J now?"


def test_an_address_is_asked_with_one_answer():
    question = ask(mode="url", url="https://crm.example/consent?x=1", message="Sign here")
    assert question.options == ("done",)
    assert json.loads(question.context)["url"] == "https://crm.example/consent?x=1"
    assert read_answer(question.context, "done") == ("done", "")
    assert to_response(GivenAnswer(call_state="", status="resolved", answer="done")) == {"action": "accept"}


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ({"type": "string"}, "red", "red"),
        ({"type": "string"}, '{"a": "red"}', "red"),
        ({"type": "integer"}, "7", 7),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"enum": ["red"]}}, "red", ["red"]),
    ],
)
def test_the_value_of_the_only_field_is_an_answer(field, text, value):
    context = ask(requestedSchema={"type": "object", "properties": {"a": field}}).context
    normalised, problem = read_answer(context, text)
    assert (json.loads(normalised), problem) == ({"a": value}, "")


@pytest.mark.parametrize(
    ("text", "problem"), [("green", "/colour"), ('{"size": 1}', "colour"), ('{"colour": 7}', "/colour")]
)
def test_an_answer_that_the_form_does_not_take_says_why(text, problem):
    assert problem in read_answer(ask(requestedSchema=FORM).context, text)[1]


def test_several_fields_need_an_object():
    context = ask(requestedSchema={"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    assert read_answer(context.context, "red")[1] == "expected a JSON object with a, b"


async def test_calls_that_wait_for_people_leave_room_for_others(monkeypatch):
    monkeypatch.setattr(session_module, "HELD_PER_SESSION_MAX", 1)

    async def ask_and_wait(request):
        question = {**PARAMS, "message": request["params"]["arguments"]["text"]}
        frame = {"jsonrpc": "2.0", "id": f"q{request['id']}", "method": "elicitation/create", "params": question}
        return Raw(200, {"content-type": "text/event-stream"}, [event(frame)], stays_open=True)

    async with PeerServer() as peer:
        peer.answers["tools/call"] = ask_and_wait
        async with over_http(peer) as here:
            assert (await here.call()).asking is not None
            with pytest.raises(Transient, match="did not answer"):
                await here.call(timeout_s=0.2)
            answers = [body["result"] for _, body in peer.requests if "result" in body]
    assert answers == [{"action": "cancel"}]


async def test_over_http_a_question_belongs_to_the_call_whose_stream_it_came_in():
    async def ask_and_wait(request):
        text = request["params"]["arguments"]["text"]
        frame = {"jsonrpc": "2.0", "id": text, "method": "elicitation/create", "params": {**PARAMS, "message": text}}
        return Raw(200, {"content-type": "text/event-stream"}, [event(frame)], stays_open=True)

    async with PeerServer() as peer:
        peer.answers["tools/call"] = ask_and_wait
        async with over_http(peer) as here:
            calls = [here.session.call_tool("echo", {"text": text}, timeout_s=30, ask_ms=ASK_MS) for text in "ab"]
            asked = [result.asking.question for result in await asyncio.gather(*calls)]
    assert asked == ["The MCP server crm asks: a", "The MCP server crm asks: b"]


def event(frame) -> bytes:
    return b"data: " + json.dumps(frame).encode() + b"\n\n"
