from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import EventParser
from loomlog.connectors.models import failures
from loomlog.connectors.models.openai_reply import OpenAiTurn
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage
from tests.connectors.models import samples
from tests.connectors.models.samples import called, openai_call, openai_frame, openai_turn, request, results, user


def turn(asked: ModelRequest | None = None) -> OpenAiTurn:
    return OpenAiTurn("some", asked or request(), lambda error: failures.from_error_object("some", error))


def played(pieces: Iterable[bytes], asked: ModelRequest | None = None) -> tuple[Reply, list[TextDelta]]:
    parser, answer = EventParser(1 << 20), turn(asked)
    deltas = [delta for piece in pieces for event in parser.feed(piece) for delta in answer.add_event(event)]
    assert answer.is_finished
    return answer.build_reply(), deltas


def calls_of(*frames: bytes, finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    reply, _ = played(openai_turn(*frames, finish=finish))
    return [(call.id, call.name, call.input) for call in reply.tool_calls]


def test_a_recorded_turn_is_this_reply() -> None:
    reply, deltas = played(samples.OPENAI_FRAMES)
    assert reply == Reply(
        text="I look für Sie.",
        tool_calls=samples.OPENAI_CALLS,
        stop_reason="tool_use",
        usage=samples.OPENAI_USAGE,
        model="gpt-4o-2024-08-06",
    )
    assert [delta.text for delta in deltas] == ["I look ", "für Sie."]


RECORDED = b"".join(samples.OPENAI_FRAMES)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(RECORDED)), max_size=20))
def test_any_chunking_of_a_recorded_turn_gives_the_same_reply(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RECORDED)]
    assert played([RECORDED[start:end] for start, end in pairwise(edges)]) == played(samples.OPENAI_FRAMES)


@pytest.mark.parametrize(
    ("given_reason", "ours"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("brand_new", "end_turn"),
    ],
)
def test_finish_reasons_are_mapped(given_reason: str, ours: str) -> None:
    assert played(openai_turn(openai_frame({"content": "hi"}), finish=given_reason))[0].stop_reason == ours


def test_stop_with_calls_means_the_calls() -> None:
    assert calls_of(openai_call(0, "{}", "a", "Search"), finish="stop") == [("a", "Search", "{}")]


def test_calls_of_an_answer_that_was_cut_are_dropped() -> None:
    assert calls_of(openai_call(0, '{"que', "a", "Search"), finish="length") == []


def test_filtered_content_is_permanent() -> None:
    with pytest.raises(Permanent, match="content_filter") as caught:
        played(openai_turn(openai_frame({"content": "hi"}), finish="content_filter"))
    assert caught.value.kind == "refused"


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_provider_that_gave_up_is_transient(reason: str) -> None:
    with pytest.raises(Transient, match=reason):
        played(openai_turn(finish=reason))


def test_missing_ids_are_made_up_the_same_way_each_time() -> None:
    frames = [openai_call(0, "{}", None, "Search"), openai_call(1, "{}", "", "Search")]
    [first, second] = calls_of(*frames)
    assert first[0] != second[0]
    assert first[0].startswith("lc-")
    assert calls_of(*frames) == [first, second]
    other, _ = played(openai_turn(*frames, finish="tool_calls"), request(call_id="r_1/2/0"))
    assert other.tool_calls[0].id != first[0]


def test_ids_used_before_in_the_run_are_replaced() -> None:
    asked = request(user("a"), called("call_0"), results(("call_0", "b")))
    reply, _ = played(openai_turn(openai_call(0, "{}", "call_0", "Search"), finish="tool_calls"), asked)
    assert reply.tool_calls[0].id.startswith("lc-")


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    assert calls_of(
        openai_call(None, '{"a":', "x", "Search"),
        openai_call(None, "1}"),
        openai_call(None, "{}", "y", "Find"),
        openai_call(None, "", "y"),
    ) == [("x", "Search", '{"a":1}'), ("y", "Find", "{}")]


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    found = calls_of(openai_call(None, "{}", None, "Search"), openai_call(None, "{}", None, "Find"))
    assert [name for _, name, _ in found] == ["Search", "Find"]


def test_calls_that_all_have_the_index_0_are_told_apart_by_their_ids() -> None:
    assert calls_of(openai_call(0, "{}", "x", "Search"), openai_call(0, "{}", "y", "Find")) == [
        ("x", "Search", "{}"),
        ("y", "Find", "{}"),
    ]


def test_an_id_that_is_repeated_in_each_piece_is_one_call() -> None:
    assert calls_of(openai_call(0, '{"a"', "x", "Search"), openai_call(0, ":1}", "x", "Search")) == [
        ("x", "Search", '{"a":1}')
    ]


def test_arguments_may_be_an_object() -> None:
    piece = {"index": 0, "id": "x", "function": {"name": "Search", "arguments": {"query": "ü"}}}
    assert calls_of(openai_frame({"tool_calls": [piece]})) == [("x", "Search", '{"query":"ü"}')]


def test_pieces_of_text_are_passed_on_as_they_come_and_nothing_overtakes_them() -> None:
    frames = [
        *(openai_frame({"content": piece}) for piece in ("O", "n", "e", "\nt", "wo")),
        openai_frame({"reasoning": "hm"}),
        *(openai_frame({"content": piece}) for piece in ("a", "b")),
        openai_call(0, "{}", "x", "Search"),
        openai_frame({"content": "c"}),
    ]
    reply, deltas = played(openai_turn(*frames, finish="tool_calls"))
    assert [delta.text for delta in deltas] == ["O", "n", "e", "\nt", "wo", "hm", "a", "b", "c"]
    assert reply.text == "One\ntwoabc"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart_from_text(field: str) -> None:
    reply, deltas = played(openai_turn(openai_frame({field: "hm", "content": None}), openai_frame({"content": "yes"})))
    assert (reply.reasoning, reply.text, reply.reasoning_signature) == ("hm", "yes", "")
    assert [delta.thinking for delta in deltas] == [True, False]


def test_a_refusal_in_words_is_text() -> None:
    assert played(openai_turn(openai_frame({"refusal": "I cannot."})))[0].text == "I cannot."


def test_content_in_parts_is_the_text_of_its_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "I look "},
        {"type": "text", "text": 7},
        {"type": "reasoning", "text": "no"},
        "f\u00fcr ",
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "output_text", "text": "Sie."},
    ]
    reply, deltas = played(openai_turn(openai_frame({"content": parts[:2]}), openai_frame({"content": parts[2:]})))
    assert reply.text == "I look f\u00fcr Sie."
    assert reply.reasoning == "hm"
    assert "".join(delta.text for delta in deltas if not delta.thinking) == reply.text
    assert played(openai_turn(openai_frame({"content": [{"type": "refusal", "refusal": "No."}]})))[0].text == "No."


@pytest.mark.parametrize(
    ("usage", "ours"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 7}, Usage(input_tokens=11, output_tokens=7)),
        (
            {"prompt_tokens": 11, "completion_tokens": 7, "prompt_cache_hit_tokens": 4},
            Usage(input_tokens=7, output_tokens=7, cache_read_input_tokens=4),
        ),
        (
            {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input_tokens=0, cache_read_input_tokens=3),
        ),
        ({"prompt_tokens": "many", "prompt_tokens_details": None}, Usage()),
    ],
)
def test_usage_counts_cached_tokens_apart(usage: dict[str, Any], ours: Usage) -> None:
    assert played([openai_frame({}, "stop", usage=usage), samples.DONE])[0].usage == ours


def test_usage_in_every_chunk_is_the_last_one() -> None:
    frames = [openai_frame({"content": "x"}, usage={"completion_tokens": n}) for n in (1, 2, 3)]
    assert played([*frames, openai_frame({}, "stop", usage=None), samples.DONE])[0].usage.output_tokens == 3


def test_a_last_usage_of_zeros_takes_nothing_back() -> None:
    frames = [openai_frame({"content": "x"}, usage={"prompt_tokens": 7, "completion_tokens": 2})]
    zeros = openai_frame({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0})
    assert played([*frames, zeros, samples.DONE])[0].usage == Usage(input_tokens=7, output_tokens=2)


def test_done_without_a_finish_reason_is_interrupted() -> None:
    with pytest.raises(Transient, match="without a finish reason") as caught:
        played([openai_frame({"content": "hi"}), samples.DONE])
    assert caught.value.kind == "broken_off"


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b'data: {"error": {"message": "m", "type": "server_error"}}\n\n', "unavailable"),
        (b'data: {"error": {"message": "m", "code": 429}}\n\n', "rate_limited"),
        (b'data: {"object": "error", "message": "m", "code": 400}\n\n', "invalid"),
        (b'event: error\ndata: {"message": "m"}\n\n', "unavailable"),
        (b'data: {"error": "m"}\n\n', "unavailable"),
    ],
)
def test_an_error_inside_the_stream_ends_the_turn(frame: bytes, kind: str) -> None:
    with pytest.raises(ConnectorError, match="m \\(error inside the stream\\)") as caught:
        played([openai_frame({"content": "hi"}), frame])
    assert caught.value.kind == kind


def test_other_choices_and_empty_data_are_ignored() -> None:
    other = openai_frame(None, choices=[{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}])
    reply, _ = played([b"data:\n\n", other, *openai_turn(openai_frame({"content": "yes"}))])
    assert (reply.text, reply.stop_reason) == ("yes", "end_turn")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["index", "delta", "content", "tool_calls", "function", "arguments", "name", "id"]), inner
        )
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "model", "error", "object"]), JSON), max_size=5))
def test_frames_of_any_shape_give_a_reply_or_our_own_failures(sent: list[dict[str, Any]]) -> None:
    try:
        frames = [openai_frame(None, **values) for values in sent]
        assert isinstance(played([*frames, *openai_turn()])[0], Reply)
    except ConnectorError:
        pass


@settings(deadline=None)
@given(st.lists(JSON, max_size=4))
def test_deltas_of_any_shape_give_a_reply(deltas: list[Any]) -> None:
    frames = [
        openai_frame(delta) if isinstance(delta, dict) else openai_frame({"tool_calls": delta}) for delta in deltas
    ]
    try:
        reply, _ = played(openai_turn(*frames))
    except Transient:
        return  # a call without a name
    assert (reply.stop_reason == "tool_use") is bool(reply.tool_calls)
    assert len({call.id for call in reply.tool_calls}) == len(reply.tool_calls)
    assert all(isinstance(call, ToolCall) for call in reply.tool_calls)
