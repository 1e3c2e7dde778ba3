from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.http.sse import EventParser, ServerSentEvent
from loomlog.connectors.models import failures
from loomlog.connectors.models.anthropic_reply import AnthropicTurn
from loomlog.connectors.models.anthropic_thinking import unpack
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall, Usage
from tests.connectors.models import samples
from tests.connectors.models.samples import called, request, results, user


def turn(asked: ModelRequest | None = None) -> AnthropicTurn:
    return AnthropicTurn("some", asked or request(), lambda error: failures.from_error_object("some", error))


def played(pieces: Iterable[bytes], asked: ModelRequest | None = None) -> tuple[Reply, list[TextDelta]]:
    parser, answer = EventParser(1 << 20), turn(asked)
    deltas = [delta for piece in pieces for event in parser.feed(piece) for delta in answer.add_event(event)]
    assert answer.is_finished
    return answer.build_reply(), deltas


def frames(*blocks: list[bytes], **more: Any) -> Reply:
    return played(samples.anthropic_turn(*blocks, **more))[0]


def test_a_recorded_turn_is_this_reply() -> None:
    reply, deltas = played(samples.ANTHROPIC_FRAMES)
    assert reply == Reply(
        text=samples.ANTHROPIC_TEXT,
        tool_calls=samples.ANTHROPIC_CALLS,
        stop_reason="tool_use",
        usage=samples.ANTHROPIC_USAGE,
        reasoning=samples.ANTHROPIC_REASONING,
        reasoning_signature="c2ln",
        model="claude-sonnet-4-5-20250929",
    )
    assert [(delta.text, delta.thinking) for delta in deltas] == [
        ("Let me ", True),
        ("see – 🙂.", True),
        ("I look ", False),
        ("für Sie.", False),
    ]


RECORDED = b"".join(samples.ANTHROPIC_FRAMES)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(RECORDED)), max_size=20))
def test_any_chunking_of_a_recorded_turn_gives_the_same_reply(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(RECORDED)]
    pieces = [RECORDED[start:end] for start, end in pairwise(edges)]
    assert played(pieces) == played(samples.ANTHROPIC_FRAMES)


@pytest.mark.parametrize(
    ("given_reason", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("model_context_window_exceeded", "max_tokens"),
        ("pause_turn", "max_tokens"),
        ("brand_new", "end_turn"),
    ],
)
def test_stop_reasons_are_mapped(given_reason: str, ours: str) -> None:
    assert frames(samples.anthropic_text(0, "hi"), stop=given_reason).stop_reason == ours


def test_a_refusal_is_permanent_and_says_why() -> None:
    with pytest.raises(Permanent, match=r"declined to answer.*cyber harm") as caught:
        frames(
            samples.anthropic_text(0, "hi"), stop="refusal", stop_details={"explanation": "could\nenable cyber harm"}
        )
    assert caught.value.kind == "refused"


def test_calls_of_an_answer_that_was_cut_are_dropped() -> None:
    reply = frames(samples.anthropic_text(0, "hi"), samples.anthropic_call(1, "t1", '{"que'), stop="max_tokens")
    assert (reply.tool_calls, reply.stop_reason, reply.text) == ((), "max_tokens", "hi")


def test_an_answer_that_thought_twice_can_be_replayed_as_it_came() -> None:
    reply = frames(
        samples.anthropic_thinking(0, "s1", "one"),
        samples.anthropic_text(1, "first"),
        samples.anthropic_redacted(2, "hidden"),
        samples.anthropic_thinking(3, "s2", "two"),
        samples.anthropic_call(4, "t1", "{}"),
        stop="tool_use",
    )
    call = {"type": "tool_use"}
    assert unpack(reply.reasoning_signature, reply.reasoning, reply.text, {"t1": call}) == [
        {"type": "thinking", "thinking": "one", "signature": "s1"},
        {"type": "text", "text": "first"},
        {"type": "redacted_thinking", "data": "hidden"},
        {"type": "thinking", "thinking": "two", "signature": "s2"},
        call,
    ]


def test_ids_used_before_in_the_run_are_replaced() -> None:
    asked = request(user("a"), called("t1"), results(("t1", "b")))
    reply, _ = played(
        samples.anthropic_turn(samples.anthropic_call(0, "t1"), samples.anthropic_call(1, "t2"), stop="tool_use"), asked
    )
    first, second = (call.id for call in reply.tool_calls)
    assert first.startswith("lc-")
    assert second == "t2"


def test_blocks_are_in_the_order_of_their_indexes() -> None:
    late, early = samples.anthropic_call(1, "t1"), samples.anthropic_call(0, "t0")
    assert [call.id for call in frames(late, early, stop="tool_use").tool_calls] == ["t0", "t1"]


def test_a_whole_input_in_the_start_of_a_block_counts() -> None:
    start = {"type": "tool_use", "id": "t1", "name": "Search", "input": {"query": "x"}}
    block = [samples.anthropic_frame("content_block_start", index=0, content_block=start)]
    assert frames(block, stop="tool_use").tool_calls == (ToolCall(id="t1", name="Search", input='{"query":"x"}'),)


def test_later_usage_wins_and_what_it_leaves_out_stays() -> None:
    answer = turn()
    for usage in (
        {"input_tokens": 5, "output_tokens": 1},
        {"input_tokens": None, "output_tokens": 9},
        {"output_tokens": 12},
    ):
        feed(answer, samples.anthropic_frame("message_delta", delta={}, usage=usage))
    assert answer.build_reply().usage == Usage(input_tokens=5, output_tokens=12)


def test_a_final_usage_of_zeros_takes_nothing_back() -> None:
    counted = {"input_tokens": 5, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 3, "output_tokens": 1}
    answer = turn()
    feed(answer, samples.anthropic_frame("message_start", message={"usage": counted}))
    feed(
        answer,
        samples.anthropic_frame("message_delta", delta={}, usage={**dict.fromkeys(counted, 0), "output_tokens": 9}),
    )
    assert answer.build_reply().usage == Usage(
        input_tokens=5, output_tokens=9, cache_creation_input_tokens=3, cache_read_input_tokens=40
    )
    feed(answer, samples.anthropic_frame("message_delta", delta={}, usage=dict.fromkeys(counted, 0)))
    assert answer.build_reply().usage.output_tokens == 9


def test_unknown_events_blocks_and_deltas_are_ignored() -> None:
    reply = frames(
        [samples.anthropic_frame("brand_new", index=0), b"event: x\ndata: 7\n\n", b"data:\n\n"],
        [samples.anthropic_frame("content_block_start", index=0, content_block={"type": "server_tool_use", "id": "s"})],
        [
            samples.anthropic_frame(
                "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{"}
            )
        ],
        samples.anthropic_text(1, "hi")[:-1],
        [samples.anthropic_frame("content_block_delta", index=1, delta={"type": "citations_delta", "citation": {}})],
    )
    assert (reply.text, reply.tool_calls) == ("hi", ())


def test_an_error_event_ends_the_turn() -> None:
    with pytest.raises(Transient, match=r"some 529: Overloaded \(error inside the stream\)") as caught:
        feed(turn(), samples.anthropic_frame("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    assert caught.value.kind == "overloaded"
    with pytest.raises(Permanent, match="some 400: too long"):
        feed(turn(), b'event: error\ndata: {"error": {"type": "invalid_request_error", "message": "too long"}}\n\n')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "index", "delta", "text", "content_block", "usage", "id"]), inner)
    ),
    max_leaves=8,
)
KINDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "error",
    "ping",
]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.dictionaries(st.sampled_from(["delta", "index", "message", "content_block", "usage", "error"]), JSON),
        ),
        max_size=6,
    )
)
def test_frames_of_any_shape_give_a_reply_or_our_own_failures(sent: list[tuple[str, dict[str, Any]]]) -> None:
    answer = turn()
    try:
        for kind, values in sent:
            feed(answer, samples.anthropic_frame(kind, **{name: v for name, v in values.items() if name != "kind"}))
        assert isinstance(answer.build_reply(), Reply)
    except ConnectorError:
        pass


def feed(answer: AnthropicTurn, frame: bytes) -> None:
    for event in EventParser(1 << 20).feed(frame):
        assert isinstance(event, ServerSentEvent)
        answer.add_event(event)
