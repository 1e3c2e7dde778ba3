"""Streams as the providers send them, and a request to ask for them."""

import json
from collections.abc import Sequence
from typing import Any

from loomlog.connectors.protocols import ModelRequest, SystemBlock, ToolSpec
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import ToolCall, Usage

SEARCH = ToolSpec(
    name="Search",
    description="Searches.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


def request(*messages: Message, text: str = "Hello", **changes: Any) -> ModelRequest:
    values: dict[str, Any] = {
        "call_id": "r_1/1/0",
        "model": "some-model",
        "system": (SystemBlock(text="Be short."),),
        "messages": messages or (user(text),),
        "tools": (SEARCH,),
    }
    return ModelRequest(**(values | changes))


def user(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def called(*ids: str, text: str = "", name: str = "Search", arguments: str = '{"query":"x"}', **more: Any) -> Message:
    calls = tuple(ToolUseBlock(id=call_id, name=name, input=arguments) for call_id in ids)
    return Message(role="assistant", blocks=((TextBlock(text=text),) if text else ()) + calls, **more)


def results(*pairs: tuple[str, str], name: str = "Search", is_error: bool = False) -> Message:
    blocks = (ToolResultBlock(tool_use_id=i, name=name, text=text, is_error=is_error) for i, text in pairs)
    return Message(role="user", blocks=tuple(blocks))


def anthropic_frame(kind: str, **values: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **values}, ensure_ascii=False)}\n\n".encode()


def anthropic_turn(*blocks: Sequence[bytes], stop: str = "end_turn", **delta: Any) -> list[bytes]:
    usage = {"input_tokens": 25, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 11, "output_tokens": 1}
    message = {"id": "msg_1", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [], "usage": usage}
    return [
        anthropic_frame("message_start", message=message),
        anthropic_frame("ping"),
        *(frame for block in blocks for frame in block),
        anthropic_frame(
            "message_delta", delta={"stop_reason": stop, "stop_sequence": None, **delta}, usage={"output_tokens": 42}
        ),
        anthropic_frame("message_stop"),
    ]


def anthropic_text(index: int, *pieces: str) -> list[bytes]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return _block(index, {"type": "text", "text": ""}, deltas)


def anthropic_thinking(index: int, signature: str, *pieces: str) -> list[bytes]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)


def anthropic_redacted(index: int, data: str) -> list[bytes]:
    return _block(index, {"type": "redacted_thinking", "data": data}, [])


def anthropic_call(index: int, call_id: str, *pieces: str, name: str = "Search") -> list[bytes]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return _block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas)


def _block(index: int, start: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> list[bytes]:
    return [
        anthropic_frame("content_block_start", index=index, content_block=start),
        *(anthropic_frame("content_block_delta", index=index, delta=delta) for delta in deltas),
        anthropic_frame("content_block_stop", index=index),
    ]


ANTHROPIC_FRAMES = anthropic_turn(
    anthropic_thinking(0, "c2ln", "Let me ", "see – 🙂."),
    anthropic_text(1, "I look ", "für Sie."),
    anthropic_call(2, "toolu_1", "", '{"que', 'ry": "späte', 'r"}'),
    anthropic_call(3, "toolu_2"),
    stop="tool_use",
)
ANTHROPIC_TEXT = "I look für Sie."
ANTHROPIC_REASONING = "Let me see – 🙂."
ANTHROPIC_CALLS = (
    ToolCall(id="toolu_1", name="Search", input='{"query": "später"}'),
    ToolCall(id="toolu_2", name="Search", input="{}"),
)
ANTHROPIC_USAGE = Usage(input_tokens=25, output_tokens=42, cache_creation_input_tokens=7, cache_read_input_tokens=11)


def openai_frame(delta: dict[str, Any] | None = None, finish: str | None = None, **values: Any) -> bytes:
    chunk: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-4o-2024-08-06"}
    chunk["choices"] = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return f"data: {json.dumps(chunk | values, ensure_ascii=False)}\n\n".encode()


def openai_call(index: int | None, arguments: str, call_id: str | None = None, name: str | None = None) -> bytes:
    piece: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
    if name is not None:
        piece["function"]["name"] = name
    return openai_frame({"tool_calls": [piece]})


DONE = b"data: [DONE]\n\n"
OPENAI_USAGE_FRAME = openai_frame(
    usage={"prompt_tokens": 36, "completion_tokens": 42, "prompt_tokens_details": {"cached_tokens": 11}}
)


def openai_turn(*frames: bytes, finish: str = "stop") -> list[bytes]:
    first = openai_frame({"role": "assistant", "content": ""})
    return [first, *frames, openai_frame({}, finish), OPENAI_USAGE_FRAME, DONE]


OPENAI_FRAMES = openai_turn(
    openai_frame({"content": "I look "}),
    b": keep-alive\n\n",
    openai_frame({"content": "für Sie."}),
    openai_call(0, "", "call_1", "Search"),
    openai_call(0, '{"query": "spä'),
    openai_call(1, "", "call_2", "Search"),
    openai_call(0, 'ter"}'),
    finish="tool_calls",
)
OPENAI_CALLS = (
    ToolCall(id="call_1", name="Search", input='{"query": "später"}'),
    ToolCall(id="call_2", name="Search", input="{}"),
)
OPENAI_USAGE = Usage(input_tokens=25, output_tokens=42, cache_read_input_tokens=11)


def gemini_frame(*parts: dict[str, Any], finish: str = "", usage: bool = True, **values: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    chunk: dict[str, Any] = {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}
    if usage:
        chunk["usageMetadata"] = {
            "promptTokenCount": 36,
            "cachedContentTokenCount": 11,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 12,
            "totalTokenCount": 78,
        }
    chunk |= {"modelVersion": "gemini-2.5-pro", "responseId": "r1"}
    return f"data: {json.dumps(chunk | values, ensure_ascii=False)}\r\n\r\n".encode()


def gemini_call(name: str, arguments: dict[str, Any], signature: str = "") -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": arguments}}
    return part | ({"thoughtSignature": signature} if signature else {})


GEMINI_FRAMES = [
    gemini_frame({"text": "Let me ", "thought": True}),
    gemini_frame({"text": "see – 🙂.", "thought": True}),
    gemini_frame({"text": "I look "}),
    gemini_frame({"text": "für Sie."}),
    gemini_frame(gemini_call("Search", {"query": "später"}, "c2ln"), gemini_call("Search", {})),
    gemini_frame({"text": ""}, finish="STOP"),
]
GEMINI_USAGE = Usage(input_tokens=25, output_tokens=42, cache_read_input_tokens=11)


def ollama_line(message: dict[str, Any] | None = None, **values: Any) -> bytes:
    line: dict[str, Any] = {"model": "qwen3:8b", "created_at": "2026-01-01T00:00:00Z"}
    line["message"] = {"role": "assistant", "content": ""} | (message or {})
    return json.dumps(line | {"done": False} | values, ensure_ascii=False).encode() + b"\n"


def ollama_call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]}


OLLAMA_END = ollama_line(done=True, done_reason="stop", prompt_eval_count=36, eval_count=42, total_duration=1)
OLLAMA_LINES = [
    ollama_line({"thinking": "Let me "}),
    ollama_line({"thinking": "see – 🙂."}),
    ollama_line({"content": "I look "}),
    ollama_line({"content": "für Sie."}),
    ollama_line(ollama_call("Search", {"query": "später"})),
    ollama_line(ollama_call("Search", {})),
    OLLAMA_END,
]
OLLAMA_USAGE = Usage(input_tokens=36, output_tokens=42)
