from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.models import failures
from loomlog.connectors.models.json_lines import JsonLineParser
from loomlog.connectors.models.ollama_reply import OllamaTurn
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.generated.values import ToolCall
from tests.connectors.models import samples
from tests.connectors.models.samples import OLLAMA_END, ollama_call, ollama_line, request


def turn(asked: ModelRequest | None = None) -> OllamaTurn:
    return OllamaTurn("some", asked or request(), lambda error: failures.from_error_object("some", error))


def played(pieces: Iterable[bytes], asked: ModelRequest | None = None) -> tuple[Reply, list[TextDelta]]:
    parser, answer = JsonLineParser(1 << 20), turn(asked)
    deltas = [delta for piece in pieces for event in parser.feed(piece) for delta in answer.add_event(event)]
    assert answer.is_finished
    return answer.build_reply(8192), deltas


def test_a_recorded_turn_is_this_reply() -> None:
    reply, deltas = played(samples.OLLAMA_LINES)
    first, second = reply.tool_calls
    assert reply == Reply(
        text="I look für Sie.",
        tool_calls=(
            ToolCall(id=first.id, name="Search", input='{"query":"später"}'),
            ToolCall(id=second.id, name="Search", input="{}"),
        ),
        stop_reason="tool_use",
        usage=samples.OLLAMA_USAGE,
        reasoning="Let me see – 🙂.",
        model="qwen3:8b",
        max_context_tokens=8192,
    )
    assert first.id != second.id
    assert [(delta.text, delta.thinking) for delta in deltas] == [
        ("Let me ", True),
        ("see – 🙂.", True),
        ("I look ", False),
        ("für Sie.", False),
    ]


@pytest.mark.parametrize(
    ("given_reason", "ours"), [("stop", "end_turn"), ("length", "max_tokens"), ("load", "end_turn"), (None, "end_turn")]
)
def test_done_reasons_are_mapped(given_reason: str | None, ours: str) -> None:
    lines = [ollama_line({"content": "hi"}), ollama_line(done=True, done_reason=given_reason)]
    assert played(lines)[0].stop_reason == ours


def test_a_message_may_come_with_the_last_line() -> None:
    reply, deltas = played([ollama_line({"content": "hi"}, done=True, done_reason="stop", eval_count=3)])
    assert (reply.text, reply.usage.output_tokens, deltas) == ("hi", 3, [TextDelta(text="hi")])


def test_a_call_written_into_the_text_is_recovered_and_not_shown() -> None:
    written = '<tool_call>{"name": "Search", "arguments": {"query": "x"}}</tool_call>'
    lines = [ollama_line({"content": "I look. "}), *(ollama_line({"content": c}) for c in written), OLLAMA_END]
    reply, deltas = played(lines)
    [call] = reply.tool_calls
    assert (call.name, call.input, reply.text, reply.stop_reason) == (
        "Search",
        '{"query":"x"}',
        "I look. ",
        "tool_use",
    )
    assert "".join(delta.text for delta in deltas) == "I look. "
    assert call.id.startswith("lc-")


def test_a_written_call_of_a_tool_that_was_not_offered_is_text() -> None:
    written = '{"name": "Search", "arguments": {}}'
    reply, _ = played([ollama_line({"content": written}), OLLAMA_END], request(tools=()))
    assert (reply.text, reply.tool_calls, reply.stop_reason) == (written, (), "end_turn")


def test_a_written_call_that_was_cut_is_text() -> None:
    lines = [ollama_line({"content": '{"name": "Search", "argum'}), ollama_line(done=True, done_reason="length")]
    reply, deltas = played(lines)
    assert (reply.text, reply.stop_reason) == ('{"name": "Search", "argum', "max_tokens")
    assert "".join(delta.text for delta in deltas) == reply.text


def test_calls_of_an_answer_that_was_cut_are_dropped() -> None:
    lines = [ollama_line(ollama_call("Search", {})), ollama_line(done=True, done_reason="length")]
    assert played(lines)[0].tool_calls == ()


def test_ids_are_kept_where_there_are_some() -> None:
    reply, _ = played([ollama_line(ollama_call("Search", {}, id="call_abc")), OLLAMA_END])
    assert reply.tool_calls[0].id == "call_abc"


def test_an_error_inside_the_stream_ends_the_turn_in_the_words_of_the_server() -> None:
    lines = [ollama_line({"content": "hi"}), b'{"error":"an error was encountered while running the model"}\n']
    with pytest.raises(Transient, match="some: an error was encountered while running the model") as caught:
        played(lines)
    assert caught.value.kind == "unavailable"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "thinking", "tool_calls", "function", "arguments", "name", "id"]), inner
        )
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["message", "error", "model", "eval_count"]), JSON)))
def test_lines_of_any_shape_give_a_reply_or_our_own_failures(sent: list[dict[str, Any]]) -> None:
    try:
        lines = [ollama_line(None, **{k: v for k, v in values.items() if k != "message"}) for values in sent]
        messages = [samples.json.dumps({"message": values.get("message")}).encode() + b"\n" for values in sent]
        reply, _ = played([*lines, *messages, OLLAMA_END])
        assert (reply.stop_reason == "tool_use") is bool(reply.tool_calls)
    except ConnectorError:
        pass
