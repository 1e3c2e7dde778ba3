"""What is said over a connection with a client, without one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from loomlog.schemas.generated.stream_records import RemoteToolRequest
from loomlog.services.core.clients import limits
from loomlog.services.core.clients.session import (
    NOT_BEGUN,
    POLICY,
    UNKNOWN,
    Act,
    Answer,
    Close,
    Offer,
    Send,
    Session,
    asked,
    due_ms,
    heard,
    heard_bytes,
    left,
    waited,
)

NOW = 1_700_000_000_000
FRESH = Session(connection_id="h.1", frame_bytes_max=4_000, hello_by_ms=NOW + 10_000)
READ = {"name": "read_page", "description": "Reads it.", "input_schema": {"properties": {"url": {"type": "string"}}}}


def hello(*tools: Any, **more: Any) -> str:
    return json.dumps({"type": "hello", "tools": list(tools), **more})


GREETED, _ = heard(FRESH, hello(READ), NOW)


def request(number: int = 1, **changes: Any) -> RemoteToolRequest:
    found = RemoteToolRequest(
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
    return replace(found, **changes)


def with_call(number: int = 1) -> Session:
    after, _ = asked(GREETED, request(number), NOW)
    return after


def frames(acts: tuple[Act, ...]) -> list[Any]:
    return [act.frame for act in acts if isinstance(act, Send)]


def answers(acts: tuple[Act, ...]) -> list[tuple[str, str]]:
    return [(act.request.request_id, act.outcome) for act in acts if isinstance(act, Answer)]


# --- hello -----------------------------------------------------------------------------------------------------------


def test_a_hello_offers_tools_before_it_is_answered() -> None:
    after, (offer, told) = heard(FRESH, hello(READ, client="browser"), NOW)
    assert isinstance(offer, Offer)
    assert (offer.client, [tool.name for tool in offer.tools]) == ("browser", ["read_page"])
    assert json.loads(offer.tools[0].input_schema) == {"type": "object", **READ["input_schema"]}  # type: ignore[dict-item]
    assert told == Send(frame={"type": "hello_ok", "connection_id": "h.1", "accepted": ["read_page"], "refused": []})
    assert after.names == {"read_page"}


def test_a_second_hello_replaces_the_tools() -> None:
    after, acts = heard(GREETED, hello({"name": "click"}), NOW)
    assert after.names == {"click"}
    assert [tool.name for act in acts if isinstance(act, Offer) for tool in act.tools] == ["click"]


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
        ({"name": "read_page"}, "before it"),
    ],
)
def test_a_tool_that_cannot_be_is_left_out_and_said(entry: Any, words: str) -> None:
    after, acts = heard(FRESH, hello(READ, entry), NOW)
    (told,) = frames(acts)
    assert (told["accepted"], after.names) == (["read_page"], {"read_page"})
    assert words in told["refused"][0]["reason"]


@pytest.mark.parametrize("tools", [None, "x", [READ] * (limits.TOOLS_MAX + 1)])
def test_a_hello_without_a_list_of_tools_ends_the_connection(tools: Any) -> None:
    after, (told, end) = heard(FRESH, json.dumps({"type": "hello", "tools": tools}), NOW)
    assert not after.has_said_hello
    assert isinstance(told, Send)
    assert told.frame["code"] == "bad_hello"
    assert isinstance(end, Close)


def test_too_many_bytes_of_tools_leave_what_was_offered() -> None:
    heavy = [{"name": f"t{n}", "input_schema": {"x": "y" * 60_000}} for n in range(10)]
    after, acts = heard(GREETED, hello(*heavy), NOW)
    assert after.names == GREETED.names
    assert [frame["code"] for frame in frames(acts)] == ["bad_hello"]


def test_halves_of_surrogate_pairs_do_not_reach_the_log() -> None:
    _, acts = heard(FRESH, '{"type":"hello","client":"\\ud800","tools":[{"name":"a","description":"\\udfff"}]}', NOW)
    (offer,) = [act for act in acts if isinstance(act, Offer)]
    assert (offer.client, offer.tools[0].description) == ("?", "?")


def test_whoever_says_nothing_is_sent_away() -> None:
    assert waited(FRESH, NOW + 9_999) == (FRESH, ())
    _, acts = waited(FRESH, NOW + 10_000)
    assert [type(act) for act in acts] == [Send, Close]
    assert due_ms(FRESH) == NOW + 10_000


def test_another_frame_first_ends_the_connection() -> None:
    _, (told, end) = heard(FRESH, '{"type":"result","call_id":"x","ok":true}', NOW)
    assert isinstance(told, Send)
    assert told.frame["code"] == "hello_expected"
    assert end == Close(code=POLICY, reason="the first frame has to be a hello")


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_is_handed_out_and_its_result_told() -> None:
    after, acts = asked(GREETED, request(), NOW)
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
    assert due_ms(after) == NOW + 60_000
    ended, acts = heard(after, '{"type":"result","call_id":"r_one:1.1:1","ok":true,"output":{"a":[1,"é"]}}', NOW)
    assert acts == (Answer(request=request(), text='{"a":[1,"é"]}', is_error=False),)
    assert (dict(ended.open), due_ms(ended)) == ({}, None)


@pytest.mark.parametrize(
    ("said", "text", "is_error"),
    [
        ({"ok": True, "output": "as it is"}, "as it is", False),
        ({"ok": True}, "", False),
        ({"ok": True, "output": [1]}, "[1]", False),
        ({"ok": True, "output": "\ud800"}, "?", False),
        ({"ok": False, "error": "no such page"}, "no such page", True),
        ({"ok": False, "error": {"code": 7}}, '{"code":7}', True),
        ({"ok": False}, "the client says that it failed", True),
    ],
)
def test_a_result_is_the_clients_own_words(said: dict[str, Any], text: str, is_error: bool) -> None:
    _, (told,) = heard(with_call(), json.dumps({"type": "result", "call_id": "r_one:1.1:1", **said}), NOW)
    assert told == Answer(request=request(), text=text, is_error=is_error)


def test_a_result_over_the_bound_is_cut() -> None:
    said = {"type": "result", "call_id": "r_one:1.1:1", "ok": True, "output": "é" * limits.TEXT_BYTES_MAX}
    _, (told,) = heard(with_call(), json.dumps(said), NOW)
    assert isinstance(told, Answer)
    assert len(told.text.encode()) < limits.TEXT_BYTES_MAX + 50
    assert told.text.endswith(f"[cut after {limits.TEXT_BYTES_MAX} bytes]")


def test_the_same_call_twice_is_handed_out_once_also_after_its_result() -> None:
    once = with_call()
    assert asked(once, request(), NOW) == (once, ())
    ended, _ = heard(once, '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    assert asked(ended, request(), NOW + 61_000) == (ended, ())


def test_what_is_long_over_is_forgotten() -> None:
    ended, _ = heard(with_call(), '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    later, _ = waited(ended, NOW + 60_000 + limits.REMEMBERED_MS)
    assert not later.remembered


def test_a_second_result_is_answered_and_changes_nothing() -> None:
    said = '{"type":"result","call_id":"r_one:1.1:1","ok":true}'
    ended, _ = heard(with_call(), said, NOW)
    after, acts = heard(ended, said, NOW)
    assert [frame["code"] for frame in frames(acts)] == ["unknown_call"]
    assert after == ended


def test_a_call_that_is_not_answered_in_time_has_an_unknown_outcome() -> None:
    assert waited(with_call(), NOW + 59_999)[1] == ()
    after, acts = waited(with_call(), NOW + 60_000)
    assert answers(acts) == [("r_one:1.1:1", UNKNOWN)]
    assert not after.open
    _, acts = heard(after, '{"type":"result","call_id":"r_one:1.1:1","ok":true}', NOW)
    assert answers(acts) == []


def test_who_goes_away_leaves_unknown_outcomes() -> None:
    both, _ = asked(with_call(1), request(2), NOW)
    after, acts = left(both)
    assert answers(acts) == [("r_one:1.1:1", UNKNOWN), ("r_one:1.2:1", UNKNOWN)]
    assert left(after)[1] == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deadline_ms": NOW}, "time was over"),
        ({"tool": "client__click"}, "does not offer"),
        ({"input": "{"}, "not JSON"),
        ({"input": '{"a":"' + "x" * 4_000 + '"}'}, "at most 4000"),
    ],
)
def test_what_cannot_be_handed_out_has_not_begun(changes: dict[str, Any], words: str) -> None:
    after, (told,) = asked(GREETED, request(**changes), NOW)
    assert isinstance(told, Answer)
    assert (told.outcome, told.is_error) == (NOT_BEGUN, True)
    assert words in told.text
    assert not after.open


def test_a_client_gets_so_many_calls_at_once() -> None:
    session = GREETED
    for number in range(limits.CALLS_MAX):
        session, acts = asked(session, request(number), NOW)
        assert len(frames(acts)) == 1
    after, acts = asked(session, request(99), NOW)
    assert answers(acts) == [("r_one:1.99:1", NOT_BEGUN)]
    ended, _ = heard(after, '{"type":"result","call_id":"r_one:1.0:1","ok":true}', NOW)
    assert len(frames(asked(ended, request(99), NOW)[1])) == 1


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
    after, acts = heard(with_call(), text, NOW)
    assert [(frame["type"], frame["code"]) for frame in frames(acts)] == [("error", code)]
    assert (len(acts), dict(after.open)) == (1, dict(with_call().open))


def test_bytes_are_garbage_too() -> None:
    assert [frame["code"] for frame in frames(heard_bytes(GREETED)[1])] == ["bad_frame"]


def test_too_much_garbage_ends_the_connection() -> None:
    session: Session = GREETED
    acts: tuple[Act, ...] = ()
    for _ in range(limits.MISTAKES_MAX):
        assert not any(isinstance(act, Close) for act in acts)
        session, acts = heard(session, "{", NOW)
    assert isinstance(acts[-1], Close)


def test_ping_is_answered_and_pong_is_not() -> None:
    assert heard(FRESH, '{"type":"ping"}', NOW) == (FRESH, (Send(frame={"type": "pong"}),))
    assert heard(GREETED, '{"type":"pong"}', NOW) == (GREETED, ())
