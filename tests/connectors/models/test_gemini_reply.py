from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import EventParser
from loomlog.connectors.models import failures, gemini_request
from loomlog.connectors.models.gemini_reply import GeminiTurn
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.conversation import Message, TextBlock, ToolUseBlock
from loomlog.schemas.generated.values import ToolCall, Usage
from tests.connectors.models import samples
from tests.connectors.models.samples import gemini_call, gemini_frame, request, results, user


def turn(asked: ModelRequest | None = None) -> GeminiTurn:
    return GeminiTurn("some", asked or request(), lambda error: failures.from_error_object("some", error))


def played(pieces: Iterable[bytes], asked: ModelRequest | None = None) -> tuple[Reply, list[TextDelta]]:
    parser, answer = EventParser(1 << 20), turn(asked)
    deltas = [delta for piece in pieces for event in parser.feed(piece) for delta in answer.add_event(event)]
    assert answer.is_complete
    return answer.build_reply(), deltas


def test_a_recorded_turn_is_this_reply() -> None:
    reply, deltas = played(samples.GEMINI_FRAMES)
    first, second = reply.tool_calls
    assert reply == Reply(
        text="I look für Sie.",
        tool_calls=(
            ToolCall(id=first.id, name="Search", input='{"query":"später"}'),
            ToolCall(id=second.id, name="Search", input="{}"),
        ),
        stop_reason="tool_use",
        usage=samples.GEMINI_USAGE,
        reasoning="Let me see – 🙂.",
        reasoning_signature=reply.reasoning_signature,
        model="gemini-2.5-pro",
    )
    assert first.id != second.id
    assert first.id.startswith("lc-")
    assert [(delta.text, delta.thinking) for delta in deltas] == [
        ("Let me ", True),
        ("see – 🙂.", True),
        ("I look ", False),
        ("für Sie.", False),
    ]


def test_a_turn_goes_back_as_it_came() -> None:
    reply, _ = played(samples.GEMINI_FRAMES)
    calls = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls)
    said = Message(
        role="assistant",
        blocks=(TextBlock(text=reply.text), *calls),
        reasoning=reply.reasoning,
        reasoning_signature=reply.reasoning_signature,
    )
    answers = results(*((call.id, "x") for call in reply.tool_calls))
    contents: Any = gemini_request.body(request(user("a"), said, answers, model="gemini-3-pro-preview"))["contents"]
    parts = contents[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, "c2ln", None]
    assert parts[0] == {"text": "I look für Sie."}


RECORDED = b"".join(samples.GEMINI_FRAMES)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(RECORDED)), max_size=20))
def test_any_chunking_of_a_recorded_turn_gives_the_same_reply(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RECORDED)]
    assert played([RECORDED[start:end] for start, end in pairwise(edges)]) == played(samples.GEMINI_FRAMES)


def test_a_signature_that_comes_in_a_part_of_its_own_is_kept() -> None:
    frames = [
        gemini_frame({"text": "yes"}),
        gemini_frame({"text": "", "thoughtSignature": "c2ln"}, finish="STOP"),
    ]
    reply, _ = played(frames)
    assert reply.reasoning_signature == 'gemini:[["text",3,"c2ln"]]'


def test_pieces_of_a_part_grow_it_until_its_signature_and_what_follows_is_another() -> None:
    frames = [
        gemini_frame({"text": "a"}),
        gemini_frame({"text": "b", "thoughtSignature": "c2ln"}),
        gemini_frame({"text": "c"}, finish="STOP"),
    ]
    assert played(frames)[0].reasoning_signature == 'gemini:[["text",2,"c2ln"],["text",1,""]]'


def test_ids_follow_from_the_attempt() -> None:
    frames = [gemini_frame(gemini_call("Search", {}), finish="STOP")]
    assert played(frames)[0].tool_calls == played(frames)[0].tool_calls
    assert played(frames)[0].tool_calls != played(frames, request(call_id="r_1/2/0"))[0].tool_calls


@pytest.mark.parametrize(
    ("given_reason", "ours"), [("STOP", "end_turn"), ("MAX_TOKENS", "max_tokens"), ("BRAND_NEW", "end_turn")]
)
def test_finish_reasons_are_mapped(given_reason: str, ours: str) -> None:
    assert played([gemini_frame({"text": "hi"}, finish=given_reason)])[0].stop_reason == ours


def test_calls_of_an_answer_that_was_cut_are_dropped_with_their_signatures() -> None:
    frames = [gemini_frame({"text": "hi"}, gemini_call("Search", {}, "c2ln"), finish="MAX_TOKENS")]
    reply, _ = played(frames)
    assert (reply.tool_calls, reply.reasoning_signature) == ((), "")


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"])
def test_a_withheld_answer_is_refused(reason: str) -> None:
    frame = gemini_frame({"text": "hi"}, candidates=[{"finishReason": reason, "finishMessage": "because"}])
    with pytest.raises(Permanent, match=rf"finishReason {reason}\): because") as caught:
        played([frame])
    assert caught.value.kind == "refused"


def test_a_blocked_prompt_is_refused() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT", "safetyRatings": []}
    with pytest.raises(Permanent, match="blockReason PROHIBITED_CONTENT") as caught:
        played([gemini_frame(candidates=[], promptFeedback=feedback)])
    assert caught.value.kind == "refused"


def test_feedback_without_a_reason_is_none() -> None:
    reply, _ = played([gemini_frame({"text": "hi"}, finish="STOP", promptFeedback={"safetyRatings": []})])
    assert reply.text == "hi"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER"])
def test_a_call_the_model_could_not_write_down_is_worth_another_try(reason: str) -> None:
    with pytest.raises(Transient, match=reason) as caught:
        played([gemini_frame(finish=reason)])
    assert caught.value.kind == "broken_off"


def test_a_conversation_without_its_signatures_is_not() -> None:
    with pytest.raises(Permanent, match="MISSING_THOUGHT_SIGNATURE") as caught:
        played([gemini_frame(finish="MISSING_THOUGHT_SIGNATURE")])
    assert caught.value.kind == "invalid"


def test_a_turn_is_finished_when_its_reason_and_its_usage_have_come() -> None:
    parser, answer = EventParser(1 << 20), turn()
    for frame, finished in (
        (gemini_frame({"text": "hi"}), False),
        (gemini_frame(finish="STOP", usage=False), False),
        (gemini_frame(candidates=[]), True),
    ):
        for event in parser.feed(frame):
            answer.add_event(event)
        assert answer.is_finished is finished


def test_usage_is_that_of_the_last_chunk_and_may_be_missing() -> None:
    grown = {"promptTokenCount": 5, "candidatesTokenCount": 9}
    frames = [gemini_frame({"text": "x"}), gemini_frame(finish="STOP", usageMetadata=grown)]
    assert played(frames)[0].usage == Usage(input_tokens=5, output_tokens=9)
    assert played([gemini_frame({"text": "x"}, finish="STOP", usage=False)])[0].usage == Usage()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "m", "status": "UNAVAILABLE"}, "unavailable"),
        ({"message": "m", "status": "RESOURCE_EXHAUSTED"}, "rate_limited"),
        ({"message": "m", "status": "INVALID_ARGUMENT"}, "invalid"),
        ({"message": "m", "status": "DEADLINE_EXCEEDED"}, "timeout"),
    ],
)
def test_an_error_inside_the_stream_ends_the_turn(error: dict[str, Any], kind: str) -> None:
    with pytest.raises(ConnectorError, match="m \\(error inside the stream\\)") as caught:
        played([gemini_frame({"text": "hi"}), gemini_frame(error=error)])
    assert caught.value.kind == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "content",
                    "parts",
                    "text",
                    "thought",
                    "thoughtSignature",
                    "functionCall",
                    "name",
                    "args",
                    "id",
                    "index",
                ]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["candidates", "usageMetadata", "error", "modelVersion"]), JSON)))
def test_frames_of_any_shape_give_a_reply_or_our_own_failures(sent: list[dict[str, Any]]) -> None:
    try:
        frames = [gemini_frame(**values) for values in sent]
        assert isinstance(played([*frames, gemini_frame(finish="STOP")])[0], Reply)
    except ConnectorError:
        pass


@settings(deadline=None)
@given(st.lists(JSON, max_size=4))
def test_parts_of_any_shape_give_a_reply_that_can_be_sent_back(parts: list[Any]) -> None:
    try:
        reply, deltas = played([gemini_frame(*parts), gemini_frame(finish="STOP")])
    except Transient:
        return  # a call without a name
    assert (reply.stop_reason == "tool_use") is bool(reply.tool_calls)
    assert "".join(delta.text for delta in deltas if not delta.thinking) == reply.text
    calls = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls)
    said = Message(
        role="assistant",
        blocks=(TextBlock(text=reply.text), *calls),
        reasoning=reply.reasoning,
        reasoning_signature=reply.reasoning_signature,
    )
    gemini_request.body(request(user("a"), said))
