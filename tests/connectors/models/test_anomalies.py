"""What no answer should be, on every wire: nothing of it is lost without a trace, and no two answers become one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.http.sse import EventParser
from loomlog.connectors.models import (
    anthropic_request,
    failures,
    gemini_request,
    ollama_request,
    openai_request,
)
from loomlog.connectors.models.anthropic_reply import AnthropicTurn
from loomlog.connectors.models.gemini_reply import GeminiTurn
from loomlog.connectors.models.json_lines import JsonLineParser
from loomlog.connectors.models.ollama_reply import OllamaTurn
from loomlog.connectors.models.openai_reply import OpenAiTurn
from loomlog.connectors.protocols import ModelRequest, Reply, TextDelta
from loomlog.schemas.conversation import Message, TextBlock, ToolUseBlock
from tests.connectors.models import samples
from tests.connectors.models.samples import request, results

HALVES = ("hi \ud83d", "\ude00 there")
WHOLE = "hi 😀 there"


@dataclass(frozen=True)
class Wire:
    name: str
    turn: Callable[..., Any]
    body: Callable[[ModelRequest], dict[str, Any]]
    text: Callable[..., list[bytes]]
    """A turn whose text, or thoughts, come in these pieces."""
    broken: dict[str, list[bytes]]
    """Turns that no provider sends on purpose, by what is wrong with them."""

    def play(self, frames: Sequence[bytes]) -> tuple[Reply, list[TextDelta]]:
        parser = JsonLineParser(1 << 20) if self.name == "ollama" else EventParser(1 << 20)
        turn = self.turn("some", request(), lambda error: failures.from_error_object("some", error))
        deltas = [delta for frame in frames for event in parser.feed(frame) for delta in turn.add_event(event)]
        return turn.build_reply(*([4096] if self.name == "ollama" else [])), deltas

    def sent_back(self, reply: Reply) -> dict[str, Any]:
        """The body of the next request, after the calls of the reply have returned."""
        calls = [ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls]
        answer = Message(
            role="assistant",
            blocks=((TextBlock(text=reply.text),) if reply.text else ()) + tuple(calls),
            reasoning=reply.reasoning,
            reasoning_signature=reply.reasoning_signature,
        )
        returned = results(*((call.id, "done") for call in reply.tool_calls))
        body: dict[str, Any] = orjson.loads(orjson.dumps(self.body(request(samples.user("go"), answer, returned))))
        return body


def openai_body(asked: ModelRequest) -> dict[str, Any]:
    return openai_request.body(asked, openai_request.OPENAI, provider="some")


def anthropic_pieces(*pieces: str, thinking: bool = False) -> list[bytes]:
    blocks = samples.anthropic_thinking(0, "c2ln", *pieces) if thinking else samples.anthropic_text(0, *pieces)
    return samples.anthropic_turn(blocks)


def openai_pieces(*pieces: str, thinking: bool = False) -> list[bytes]:
    field = "reasoning" if thinking else "content"
    return samples.openai_turn(*(samples.openai_frame({field: piece}) for piece in pieces))


def gemini_pieces(*pieces: str, thinking: bool = False) -> list[bytes]:
    mark = {"thought": True} if thinking else {}
    return [*(samples.gemini_frame({"text": p, **mark}) for p in pieces), samples.gemini_frame(finish="STOP")]


def ollama_pieces(*pieces: str, thinking: bool = False) -> list[bytes]:
    field = "thinking" if thinking else "content"
    return [*(samples.ollama_line({field: piece}) for piece in pieces), samples.OLLAMA_END]


def second_openai_answer() -> list[bytes]:
    first = [samples.openai_frame({"role": "assistant", "content": "half"}), samples.openai_frame({"content": " of A"})]
    second = samples.openai_frame({"role": "assistant", "content": "whole of B"}, id="chatcmpl-2")
    return [*first, second, samples.openai_frame({}, "stop", id="chatcmpl-2"), samples.DONE]


WIRES = [
    Wire(
        "anthropic",
        AnthropicTurn,
        anthropic_request.body,
        anthropic_pieces,
        {
            "a second answer in it": [
                *samples.anthropic_turn(samples.anthropic_thinking(0, "c2ln", "first"))[:-2],
                *samples.anthropic_turn(samples.anthropic_thinking(0, "c2ln", "second")),
            ],
            "a block that begins twice": samples.anthropic_turn(
                samples.anthropic_call(0, "d1", "{}")[:-1], samples.anthropic_call(0, "d2", "{}"), stop="tool_use"
            ),
            "a piece of no block": samples.anthropic_turn(samples.anthropic_text(0, "lost")[1:]),
            "a piece of another type": samples.anthropic_turn(
                [*samples.anthropic_thinking(0, "c2ln")[:1], *samples.anthropic_text(0, "text")[1:]]
            ),
            "calls announced and none": samples.anthropic_turn(samples.anthropic_text(0, "hi"), stop="tool_use"),
            "a call without a name": samples.anthropic_turn(
                samples.anthropic_call(0, "d1", "{}", name=""), stop="tool_use"
            ),
        },
    ),
    Wire(
        "openai",
        OpenAiTurn,
        openai_body,
        openai_pieces,
        {
            "a second answer in it": second_openai_answer(),
            "calls announced and none": samples.openai_turn(
                samples.openai_frame({"content": "hi"}), finish="tool_calls"
            ),
            "a call of the old kind": samples.openai_turn(
                samples.openai_frame({"function_call": {"name": "Search", "arguments": "{}"}}), finish="function_call"
            ),
            "a call without a name": samples.openai_turn(samples.openai_call(0, "{}", "d1"), finish="tool_calls"),
        },
    ),
    Wire(
        "gemini",
        GeminiTurn,
        gemini_request.body,
        gemini_pieces,
        {"a call without a name": [samples.gemini_frame(samples.gemini_call("", {"q": 1}), finish="STOP")]},
    ),
    Wire(
        "ollama",
        OllamaTurn,
        ollama_request.body,
        ollama_pieces,
        {"a call without a name": [samples.ollama_line(samples.ollama_call("", {})), samples.OLLAMA_END]},
    ),
]
each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.name))


@pytest.mark.parametrize(
    ("wire", "frames"),
    [pytest.param(wire, frames, id=f"{wire.name}: {name}") for wire in WIRES for name, frames in wire.broken.items()],
)
def test_a_broken_answer_breaks_the_turn_off_and_may_be_repeated(wire: Wire, frames: list[bytes]) -> None:
    with pytest.raises(Transient, match="the answer was broken") as caught:
        wire.play(frames)
    assert caught.value.kind == "broken_off"


@each_wire
@pytest.mark.parametrize("thinking", [False, True], ids=["text", "thoughts"])
def test_the_halves_of_an_emoji_in_two_pieces_are_one_emoji(
    wire: Wire, thinking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value, **_: dumps(value))  # escaped, as a server with UTF-16 writes it
    frames = wire.text(*HALVES, thinking=thinking)
    reply, deltas = wire.play(frames)
    assert (reply.reasoning if thinking else reply.text) == WHOLE
    assert [delta.text for delta in deltas] == ["hi ", "😀 there"]


def test_halves_in_the_arguments_of_a_call_are_joined_too() -> None:
    frames = [
        samples.openai_call(0, '{"query":"', "c1", "Search"),
        samples.openai_call(0, "HIGH").replace(b"HIGH", b"\\ud83d"),
        samples.openai_call(0, 'LOW"}').replace(b"LOW", b"\\ude00"),
    ]
    reply, _ = WIRES[1].play(samples.openai_turn(*frames, finish="tool_calls"))
    assert reply.tool_calls[0].input == '{"query":"😀"}'


def test_an_index_that_is_used_again_after_its_block_is_another_block() -> None:
    wire = WIRES[0]
    frames = samples.anthropic_turn(
        samples.anthropic_call(0, "d1", '{"path":"a.txt"}', name="Read"),
        samples.anthropic_call(0, "d2", '{"path":"b.txt"}', name="Read"),
        stop="tool_use",
    )
    reply, _ = wire.play(frames)
    assert [(call.id, call.input) for call in reply.tool_calls] == [
        ("d1", '{"path":"a.txt"}'),
        ("d2", '{"path":"b.txt"}'),
    ]


def test_reasoning_blocks_and_signatures_of_an_openai_gateway_go_back_as_they_came() -> None:
    detail = {"type": "reasoning.encrypted", "data": "ENC1", "id": "t1", "format": "google-gemini-v1", "index": 0}
    signed = {"extra_content": {"google": {"thought_signature": "SIG-ABC"}}}
    call = {"index": 0, "id": "g1", "type": "function", "function": {"name": "Read", "arguments": '{"path":"a.txt"}'}}
    frames = samples.openai_turn(
        samples.openai_frame({"role": "assistant", "content": None, "reasoning_details": [detail]}),
        samples.openai_frame({"tool_calls": [call | signed]}),
        finish="tool_calls",
    )
    wire = WIRES[1]
    reply, _ = wire.play(frames)
    answer = {
        "role": "assistant",
        "content": None,
        "reasoning_details": [detail],
        "tool_calls": [{name: value for name, value in call.items() if name != "index"} | signed],
    }
    assert wire.sent_back(reply)["messages"][2] == answer
    elsewhere = openai_request.body(
        request(Message(role="assistant", blocks=(), reasoning_signature=reply.reasoning_signature)),
        openai_request.OPENAI,
        provider="another",
    )
    assert "ENC1" not in str(elsewhere)


def test_reasoning_blocks_that_arrive_in_pieces_go_back_whole() -> None:
    def piece(text: str | None, **more: Any) -> bytes:
        block = {"type": "reasoning.text", "index": 0, "signature": None, **more}
        return samples.openai_frame({"reasoning_details": [block | ({"text": text} if text is not None else {})]})

    wire = WIRES[1]
    reply, deltas = wire.play(
        samples.openai_turn(
            piece("let me "),
            piece("see"),
            piece(None, signature="S1"),
            piece("then", index=1),
            samples.openai_frame({"content": "yes"}),
        )
    )
    assert [delta.text for delta in deltas if delta.thinking] == ["let me ", "see", "then"]
    assert wire.sent_back(reply)["messages"][2]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "signature": "S1", "text": "let me see"},
        {"type": "reasoning.text", "index": 1, "signature": None, "text": "then"},
    ]


@pytest.mark.parametrize(
    ("wire", "frames", "kept"),
    [
        (
            WIRES[0],
            samples.anthropic_turn(
                [
                    samples.anthropic_frame(
                        "content_block_start",
                        index=0,
                        content_block={"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                    ),
                    samples.anthropic_frame(
                        "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"q":"x"}'}
                    ),
                    samples.anthropic_frame("content_block_stop", index=0),
                ],
                samples.anthropic_text(1, "found"),
            ),
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}},
        ),
        (
            WIRES[2],
            [
                samples.gemini_frame({"executableCode": {"language": "PYTHON", "code": "1"}}),
                samples.gemini_frame({"text": "one"}, finish="STOP"),
            ],
            {"executableCode": {"language": "PYTHON", "code": "1"}},
        ),
    ],
    ids=["anthropic", "gemini"],
)
def test_a_part_of_a_type_the_runtime_has_no_use_for_goes_back_as_it_came(
    wire: Wire, frames: list[bytes], kept: dict[str, Any]
) -> None:
    reply, _ = wire.play(frames)
    body = wire.sent_back(reply)
    parts = body["messages"][1]["content"] if wire.name == "anthropic" else body["contents"][1]["parts"]
    assert parts[0] == kept
    assert parts[1]["text"] == reply.text
