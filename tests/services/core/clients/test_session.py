"""What is said over a connection with a client, without one."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.stream_records import RemoteToolRequest
from loomlog.schemas.records import replace
from loomlog.services.core.clients import limits
from loomlog.services.core.clients.session import (
    NOT_BEGUN,
    POLICY_VIOLATION,
    UNKNOWN,
    ClientSession,
    CloseConnection,
    CompleteCall,
    RegisterTools,
    SendFrame,
    SessionAction,
    disconnect,
    next_timeout_ms,
    on_timeout,
    receive,
    receive_bytes,
    send_request,
)

NOW = 1_700_000_000_000
FRESH = ClientSession(connection_id="h.1", frame_bytes_max=4_000, hello_by_ms=NOW + 10_000)
READ = {"name": "read_page", "description": "Reads it.", "input_schema": {"properties": {"url": {"type": "string"}}}}


def hello(*tools: Any, **more: Any) -> str:
    return json.dumps({"type": "hello", "tools": list(tools), **more})


GREETED, _ = receive(FRESH, hello(READ), NOW)


def request(number: int = 1, **changes: Any) -> RemoteToolRequest:
    remote_tool_request = RemoteToolRequest(
        request_id=f"r_one:1.{number}:1",
        idempotency_key=f"r_one:1.{number}:1",
        run_id="r_one",
        tenant="acme",
        agent="helper",
        agent_id="a_one",
        tool="client__read_page",
        input='{"url": "x"}',
        attempt=1,
        issued_at_ms=NOW,
        deadline_ms=NOW + 60_000,
        connection_id="h.1",
    )
    return replace(remote_tool_request, **changes)


def with_call(number: int = 1) -> ClientSession:
    after, _ = send_request(GREETED, request(number), NOW)
    return after


def frames(acts: tuple[SessionAction, ...]) -> list[Any]:
    return [act.frame for act in acts if isinstance(act, SendFrame)]


def answers(acts: tuple[SessionAction, ...]) -> list[tuple[str, str]]:
    return [(act.request.request_id, act.outcome) for act in acts if isinstance(act, CompleteCall)]


# --- hello -----------------------------------------------------------------------------------------------------------


def test_a_hello_offers_tools_before_it_is_answered() -> None:
    after, (offer, action) = receive(FRESH, hello(READ, client="browser"), NOW)
    assert isinstance(offer, RegisterTools)
    assert (offer.client, [tool.name for tool in offer.tools]) == ("browser", ["read_page"])
    assert json.loads(offer.tools[0].input_schema) == {"type": "object", **READ["input_schema"]}  # type: ignore[dict-item]
    assert action == SendFrame(
        frame={"type": "hello_ok", "connection_id": "h.1", "accepted": ["read_page"], "refused": []}
    )
    assert after.tool_names == {"read_page"}


def test_a_second_hello_replaces_the_tools() -> None:
    after, acts = receive(GREETED, hello({"name": "click"}), NOW)
    assert after.tool_names == {"click"}
    assert [tool.name for act in acts if isinstance(act, RegisterTools) for tool in act.tools] == ["click"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("x", "expected an object"),
        ({}, "name"),
        ({"name": "a.b"}, "name"),
        ({"name": "ä"}, "name"),
        ({"name": "a" * (limits.NAME_CHARACTERS_MAX + 1)}, "name"),
        ({"name": "a", "description": 1}, "description"),
        ({"name": "a", "description": "x" * 5_000}, "description"),
        ({"name": "a", "input_schema": []}, "input_schema"),
        ({"name": "a", "input_schema": {"type": "array"}}, "type: object"),
        ({"name": "a", "input_schema": {"x": "y" * 70_000}}, "at most"),
        ({"name": "read_page"}, "duplicate name"),
    ],
)
def test_a_tool_that_cannot_be_is_left_out_and_said(entry: Any, words: str) -> None:
    after, acts = receive(FRESH, hello(READ, entry), NOW)
    (options,) = frames(acts)
    assert (options["accepted"], after.tool_names) == (["read_page"], {"read_page"})
    assert words in options["refused"][0]["reason"]


@pytest.mark.parametrize("tools", [None, "x", [READ] * (limits.TOOLS_MAX + 1)])
def test_a_hello_without_a_list_of_tools_ends_the_connection(tools: Any) -> None:
    after, (action, end) = receive(FRESH, json.dumps({"type": "hello", "tools": tools}), NOW)
    assert not after.has_received_hello
    assert isinstance(action, SendFrame)
    assert action.frame["code"] == "bad_hello"
    assert isinstance(end, CloseConnection)


def test_too_many_bytes_of_tools_leave_what_was_offered() -> None:
    heavy = [{"name": f"t{n}", "input_schema": {"x": "y" * 60_000}} for n in range(10)]
    after, acts = receive(GREETED, hello(*heavy), NOW)
    assert after.tool_names == GREETED.tool_names
    assert [frame["code"] for frame in frames(acts)] == ["bad_hello"]


def test_halves_of_surrogate_pairs_do_not_reach_the_log() -> None:
    _, acts = receive(FRESH, '{"type":"hello","client":"\\ud800","tools":[{"name":"a","description":"\\udfff"}]}', NOW)
    (offer,) = [act for act in acts if isinstance(act, RegisterTools)]
    assert (offer.client, offer.tools[0].description) == ("?", "?")


def test_whoever_says_nothing_is_sent_away() -> None:
    assert on_timeout(FRESH, NOW + 9_999) == (FRESH, ())
    _, acts = on_timeout(FRESH, NOW + 10_000)
    assert [type(act) for act in acts] == [SendFrame, CloseConnection]
    assert next_timeout_ms(FRESH) == NOW + 10_000


def test_another_frame_first_ends_the_connection() -> None:
    _, (action, end) = receive(FRESH, '{"type":"result","call_id":"x","ok":true}', NOW)
    assert isinstance(action, SendFrame)
    assert action.frame["code"] == "hello_expected"
    assert end == CloseConnection(code=POLICY_VIOLATION, reason="the first frame has to be a hello")


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_is_handed_out_and_its_result_told() -> None:
    after, acts = send_request(GREETED, request(), NOW)
    (frame,) = frames(acts)
    assert frame == {
        "type": "invoke",
        "call_id": "r_one:1.1:1",
        "run_id": "r_one",
        "agent_id": "a_one",
        "tool": "read_page",
        "input": {"url": "x"},
        "agent": "helper",
        "deadline_ms": NOW + 60_000,
    }
    assert next_timeout_ms(after) == NOW + 60_000
    ended, acts = receive(after, '{"type":"result","call_id":"r_one:1.1:1","ok":true,"output":{"a":[1,"é"]}}', NOW)
    assert acts == (CompleteCall(request=request(), text='{"a":[1,"é"]}', is_error=False),)
    assert (dict(ended.open_calls), next_timeout_ms(ended)) == ({}, None)


@pytest.mark.parametrize(
    ("said", "text", "is_error"),
    [
        ({"ok": True, "output": "as it is"}, "as it is", False),
        ({"ok": True}, "", False),
        ({"ok": True, "output": [1]}, "[1]", False),
        ({"ok": True, "output": "\ud800"}, "?", False),
        ({"ok": False, "error": "no such page"}, "no such page", True),
        ({"ok": False, "error": {"code": 7}}, '{"code":7}', True),
        ({"ok": False}, "the client reports a failure", True),
    ],
)
def test_a_result_is_the_clients_own_words(said: dict[str, Any], text: str, is_error: bool) -> None:
    _, (action,) = receive(with_call(), json.dumps({"type": "result", "call_id": "r_one:1.1:1", **said}), NOW)
    assert action == CompleteCall(request=request(), text=text, is_error=is_error)


def test_a_result_over_the_bound_is_cut() -> None:
    output = {"type": "result", "call_id": "r_one:1.1:1", "ok": True, "output": "é" * limits.TEXT_BYTES_MAX}
    _, (action,) = receive(with_call(), json.dumps(output), NOW)
    assert isinstance(action, CompleteCall)
    assert len(action.text.encode()) < limits.TEXT_BYTES_MAX + 50
    assert action.text.endswith(f"[cut after {limits.TEXT_BYTES_MAX} bytes]")


def test_the_same_call_twice_is_handed_out_once_also_after_its_result() -> None:
    once = with_call()
    assert send_request(once, request(), NOW) == (once, ())
    ended, _ = receive(once, '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    assert send_request(ended, request(), NOW + 61_000) == (ended, ())


def test_what_is_long_over_is_forgotten() -> None:
    ended, _ = receive(with_call(), '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    later, _ = on_timeout(ended, NOW + 60_000 + limits.SEEN_CALL_TTL_MS)
    assert not later.seen_until_ms


def test_a_second_result_is_answered_and_changes_nothing() -> None:
    output = '{"type":"result","call_id":"r_one:1.1:1","ok":true}'
    ended, _ = receive(with_call(), output, NOW)
    after, acts = receive(ended, output, NOW)
    assert [frame["code"] for frame in frames(acts)] == ["unknown_call"]
    assert after == ended


def test_a_call_that_is_not_answered_in_time_has_an_unknown_outcome() -> None:
    assert on_timeout(with_call(), NOW + 59_999)[1] == ()
    after, acts = on_timeout(with_call(), NOW + 60_000)
    assert answers(acts) == [("r_one:1.1:1", UNKNOWN)]
    assert not after.open_calls
    _, acts = receive(after, '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    assert answers(acts) == []


def test_who_goes_away_leaves_unknown_outcomes() -> None:
    both, _ = send_request(with_call(1), request(2), NOW)
    after, acts = disconnect(both)
    assert answers(acts) == [("r_one:1.1:1", UNKNOWN), ("r_one:1.2:1", UNKNOWN)]
    assert disconnect(after)[1] == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deadline_ms": NOW}, "deadline passed"),
        ({"tool": "client__click"}, "does not offer"),
        ({"input": "{"}, "not JSON"),
        ({"input": '{"a":"' + "x" * 4_000 + '"}'}, "at most 4000"),
    ],
)
def test_what_cannot_be_handed_out_has_not_begun(changes: dict[str, Any], words: str) -> None:
    after, (action,) = send_request(GREETED, request(**changes), NOW)
    assert isinstance(action, CompleteCall)
    assert (action.outcome, action.is_error) == (NOT_BEGUN, True)
    assert words in action.text
    assert not after.open_calls


def test_a_client_gets_so_many_calls_at_once() -> None:
    session = GREETED
    for number in range(limits.CALLS_MAX):
        session, acts = send_request(session, request(number), NOW)
        assert len(frames(acts)) == 1
    after, acts = send_request(session, request(99), NOW)
    assert answers(acts) == [("r_one:1.99:1", NOT_BEGUN)]
    ended, _ = receive(after, '{"type":"result","call_id":"r_one:1.0:1","ok":true}', NOW)
    assert len(frames(send_request(ended, request(99), NOW)[1])) == 1


# --- what makes no sense ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "bad_frame"),
        ("[" * 100_000, "bad_frame"),
        ("[]", "bad_frame"),
        ("{}", "bad_frame"),
        ('{"type":1}', "bad_frame"),
        ('{"type":"dance"}', "unknown_type"),
        ('{"type":"result"}', "bad_frame"),
        ('{"type":"result","call_id":1,"ok":true}', "bad_frame"),
        ('{"type":"result","call_id":"r_one:1.1:1","ok":"yes"}', "bad_frame"),
    ],
)
def test_garbage_gets_an_error_and_leaves_the_calls_open(text: str, code: str) -> None:
    after, acts = receive(with_call(), text, NOW)
    assert [(frame["type"], frame["code"]) for frame in frames(acts)] == [("error", code)]
    assert (len(acts), dict(after.open_calls)) == (1, dict(with_call().open_calls))


def test_bytes_are_garbage_too() -> None:
    assert [frame["code"] for frame in frames(receive_bytes(GREETED)[1])] == ["bad_frame"]


def test_too_much_garbage_ends_the_connection() -> None:
    session: ClientSession = GREETED
    acts: tuple[SessionAction, ...] = ()
    for _ in range(limits.PROTOCOL_ERRORS_MAX):
        assert not any(isinstance(act, CloseConnection) for act in acts)
        session, acts = receive(session, "{", NOW)
    assert isinstance(acts[-1], CloseConnection)


def test_ping_is_answered_and_pong_is_not() -> None:
    assert receive(FRESH, '{"type":"ping"}', NOW) == (FRESH, (SendFrame(frame={"type": "pong"}),))
    assert receive(GREETED, '{"type":"pong"}', NOW) == (GREETED, ())
