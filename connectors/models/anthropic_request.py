"""Conversion of a ModelRequest to the body of POST /v1/messages.

Pure: the same request produces the same bytes. The rules are those of runtime parity 2.4, adapted to what the API
refuses: an empty text block, an empty result marked as an error, more than four cache marks, temperature together with
top_p, any of them together with thinking, a thinking budget on models that choose their own depth, thinking switched on
in the middle of a tool loop that began without it. An option that a provider lacks is dropped and is not an error
(parity 1.18).

Before: anthropic. After: the wire.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from loomlog.connectors.models import anthropic_thinking, untrusted_json
from loomlog.connectors.models.tool_schema import flatten_schema
from loomlog.connectors.models.wire_format import (
    arguments_for_wire,
    call_id_for_wire,
    data_of,
    text_of,
    tool_name_for_wire,
)
from loomlog.connectors.protocols import ModelRequest, SystemBlock, ToolSpec
from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import Sampling

DEFAULT_MAX_TOKENS = 8192
"""max_tokens of requests without a limit: the API requires one; the value is the reference's."""
MAX_CACHE_BREAKPOINTS = 4
"""Cache marks per request; the API refuses more. The last ones are kept, as they cover the longest prefixes."""
MAX_TEMPERATURE = 1.0
"""Highest temperature; loomlog's range goes to 2, the API refuses more than 1."""


def body(request: ModelRequest, *, parallel: bool = True) -> dict[str, object]:
    """Return the body, ready for JSON. `parallel` False requests at most one tool call per turn."""
    max_tokens = request.max_tokens or DEFAULT_MAX_TOKENS
    messages = [message for message in map(_message, request.messages) if message["content"]]
    result: dict[str, object] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "stream": True,
        "messages": messages,
    }
    system = _system(request.system)
    if system:
        result["system"] = system
    if request.tools:
        result["tools"] = [_tool(tool) for tool in request.tools]
        if not parallel:
            result["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    traits = anthropic_thinking.thinking_traits(request.model)
    thinking = _thinking(request, traits, max_tokens, messages)
    result.update(thinking)
    if request.must_call_tool and "thinking" not in thinking:  # refused together
        result["tool_choice"] = {**untrusted_json.fields(result.get("tool_choice")), "type": "any"}
    if request.sampling is not None:
        result.update(_sampling(request.sampling, is_allowed=traits.takes_sampling and "thinking" not in thinking))
    return result


def dropped_options(request: ModelRequest, body: Mapping[str, object]) -> list[str]:
    """Return the sampling options that the body lacks, for the log; temperature and top_p are never sent together."""
    sampling = request.sampling
    if sampling is None:
        return []
    named = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    return [name for name, value in named.items() if value is not None and name not in body]


def _system(blocks: Sequence[SystemBlock]) -> list[dict[str, object]]:
    kept = [block for block in blocks if block.text.strip()]
    marked = [position for position, block in enumerate(kept) if block.cacheable][-MAX_CACHE_BREAKPOINTS:]
    result: list[dict[str, object]] = []
    for position, block in enumerate(kept):
        entry: dict[str, object] = {"type": "text", "text": block.text}
        if position in marked:
            entry["cache_control"] = {"type": "ephemeral"}
        result.append(entry)
    return result


def _tool(tool: ToolSpec) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "input_schema": flatten_schema(tool.input_schema)}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "assistant":
        return {"role": "assistant", "content": _assistant(message)}
    # Results first: the API refuses a message that answers calls after other content.
    ordered = sorted(message.blocks, key=lambda block: not isinstance(block, ToolResultBlock))
    return {"role": "user", "content": [entry for entry in map(_block, ordered) if entry is not None]}


def _assistant(message: Message) -> list[dict[str, Any]]:
    """Return the answer exactly as Claude sent it when it has Claude's signature; otherwise its text and calls only."""
    calls = {block.id: _call(block) for block in message.blocks if isinstance(block, ToolUseBlock)}
    text = "".join(text_of(block) for block in message.blocks if isinstance(block, TextBlock))
    replayed = anthropic_thinking.unpack(message.reasoning_signature, message.reasoning, text, calls)
    if replayed is not None:
        return replayed
    return [entry for entry in map(_block, message.blocks) if entry is not None]


def _block(block: Block) -> dict[str, Any] | None:
    """Return a content block; None for blank text, which the API refuses."""
    match block:
        case TextBlock():
            text = text_of(block)
            return {"type": "text", "text": text} if text.strip() else None
        case ImageBlock():
            source = {"type": "base64", "media_type": block.media_type, "data": data_of(block)}
            return {"type": "image", "source": source}
        case ToolUseBlock():
            return _call(block)
        case ToolResultBlock():
            return _tool_result(block)


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = orjson.Fragment(arguments_for_wire(block.input))
    return {
        "type": "tool_use",
        "id": call_id_for_wire(block.id),
        "name": tool_name_for_wire(block.name),
        "input": arguments,
    }


def _tool_result(block: ToolResultBlock) -> dict[str, Any]:
    text = text_of(block)
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": call_id_for_wire(block.tool_use_id),
        "content": text or ("the tool failed without a message" if block.is_error else ""),
    }
    if block.is_error:
        result["is_error"] = True
    return result


def _thinking(
    request: ModelRequest,
    traits: anthropic_thinking.ThinkingTraits,
    max_tokens: int,
    messages: Sequence[dict[str, Any]],
) -> dict[str, object]:
    if not request.effort or not traits.can_think:
        return {}
    if traits.is_adaptive:
        result: dict[str, object] = {"output_config": {"effort": request.effort}}
        if request.effort != "low":
            # summarized: the newest models omit their thinking by default
            result["thinking"] = {"type": "adaptive", "display": "summarized"}
        return result
    budget = anthropic_thinking.budget_tokens(request.effort, max_tokens)
    if not budget or _began_without_thinking(messages):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _began_without_thinking(messages: Sequence[dict[str, Any]]) -> bool:
    """Return whether the last assistant message called tools without thinking first, as one from
    another provider does.
    """
    last: list[dict[str, Any]] = next(
        (message["content"] for message in reversed(messages) if message["role"] == "assistant"), []
    )
    called = any(entry["type"] == "tool_use" for entry in last)
    return called and last[0]["type"] not in ("thinking", "redacted_thinking")


def _sampling(sampling: Sampling, *, is_allowed: bool) -> dict[str, object]:
    """Return the sampling fields: stop strings always, the rest where allowed; temperature takes
    precedence over top_p.
    """
    result: dict[str, object] = {}
    stops = [stop for stop in sampling.stop if stop.strip()]
    if stops:
        result["stop_sequences"] = stops
    if not is_allowed:
        return result
    if sampling.temperature is not None:
        result["temperature"] = min(sampling.temperature, MAX_TEMPERATURE)
    elif sampling.top_p is not None:
        result["top_p"] = sampling.top_p
    if sampling.top_k is not None:
        result["top_k"] = sampling.top_k
    return result
