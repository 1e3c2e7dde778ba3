"""Conversion of a ModelRequest to the body of POST /chat/completions, for OpenAI and its dialects.

Pure: the same request produces the same bytes. Differences between the providers of this wire are a `Dialect` value,
not a subclass. The system prompt is one system message; a user's text is one plain string unless there are images; each
tool result is a message of its own, before the rest of the user's message, as the API requires.

Reasoning models take max_completion_tokens and an effort, and refuse temperature, top_p, penalties and stop strings.
They are known by name, because the wire does not report it. An option that a provider lacks is dropped and is not an
error (parity 1.18).

Before: openai. After: the wire.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.models import openai_state, untrusted_json
from loomlog.connectors.models.tool_schema import COMBINERS, flatten_schema
from loomlog.connectors.models.wire_format import (
    arguments_for_wire,
    call_id_for_wire,
    data_of,
    text_of,
    tool_name_for_wire,
)
from loomlog.connectors.protocols import ModelRequest, SystemBlock, ToolSpec
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import Sampling

MAX_STOPS = 4
"""Stop strings per request; the API refuses more. loomlog allows 8; the first ones are sent."""
REASONING_FAMILIES = ("gpt-5", "o1", "o3", "o4", "o5")
_WITHOUT_OUTPUT_SCHEMA = re.compile(r"gpt-4o-2024-05-13|gpt-4o-(audio|realtime|transcribe)|o1-(mini|preview)")
_STRICT_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "description"}
    | {"title", "$ref", "$defs"}
)
_WITHOUT_VISION = re.compile(
    r"gpt-3\.5|gpt-4(-32k|-turbo-preview|-0314|-0613|-1106|-0125)?(-preview|-0314|-0613)?\Z|o1-(mini|preview)|o3-mini"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Differences of a provider of this wire from OpenAI."""

    base_url: str
    """Used when the configuration has none; this address requires a key."""
    max_context_tokens: int
    supports_thinking: bool = False
    """Whether its answers contain reasoning text."""
    supports_vision: bool = True
    echoes_reasoning: bool = False
    """Whether reasoning of earlier assistant messages is sent back; some providers require it, OpenAI has no such
    field.
    """
    switches_thinking: bool = False
    """Whether it takes `thinking: {"type": "disabled"}`."""
    effort_models: tuple[str, ...] = REASONING_FAMILIES
    """Name prefixes or, beginning with "*", name parts of models that take reasoning_effort."""
    max_completion_tokens_models: tuple[str, ...] = REASONING_FAMILIES
    """The same for models that take max_completion_tokens and no sampling."""
    output_schema_models: tuple[str, ...] = ()
    """The same for models that take a JSON Schema of their answer as response_format, tools or not."""
    requires_calls: bool = True
    """Whether an answer can be required to be a tool call; thinking models of some providers refuse that."""


OPENAI = Dialect(
    base_url="https://api.openai.com/v1",
    max_context_tokens=128_000,
    output_schema_models=("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "o1", "o3", "o4", "o5"),
)
OUTPUT_NAME = "record"
"""Name of the output schema on the wire, which requires one."""


def body(
    request: ModelRequest, dialect: Dialect, *, provider: str = "", parallel: bool = True, streaming: bool = True
) -> dict[str, object]:
    """Return the body, ready for JSON. `parallel` False requests at most one tool call per turn; state goes back to
    the `provider` it came from.
    """
    messages = _system(request.system)
    for message in request.messages:
        messages += _assistant(message, dialect, provider) if message.role == "assistant" else _user(message)
    result: dict[str, object] = {"model": request.model, "messages": messages, "stream": streaming}
    if streaming:
        result["stream_options"] = {"include_usage": True}
    if request.tools:
        result["tools"] = [_tool(tool) for tool in request.tools]
        if not parallel:
            result["parallel_tool_calls"] = False
        if request.must_call_tool and dialect.requires_calls:
            result["tool_choice"] = "required"
    if request.output_schema is not None:
        result["response_format"] = _response_format(request.output_schema)
    reasoning = matches_name(request.model, dialect.max_completion_tokens_models)
    if request.max_tokens:
        result["max_completion_tokens" if reasoning else "max_tokens"] = request.max_tokens
    if dialect.switches_thinking and _called_without_reasoning(request.messages):
        result["thinking"] = {"type": "disabled"}
    elif request.effort and matches_name(request.model, dialect.effort_models) and "chat" not in request.model:
        result["reasoning_effort"] = request.effort
    if request.sampling is not None:
        result.update(_sampling(request.sampling, reasoning=reasoning and "chat" not in request.model))
    return result


def matches_name(model: str, patterns: Sequence[str]) -> bool:
    """Return whether the name, without a gateway's "vendor/" in front, begins with a pattern or contains the rest of a
    "*" pattern.
    """
    name = model.lower().rpartition("/")[2]
    return any(pattern[1:] in name if pattern.startswith("*") else name.startswith(pattern) for pattern in patterns)


def takes_output_schema(request: ModelRequest, dialect: Dialect) -> bool:
    """Return whether the model takes the schema of its answer; alternatives at the top of a schema it takes nowhere."""
    schema, model = request.output_schema or {}, request.model
    return (
        matches_name(model, dialect.output_schema_models)
        and not _WITHOUT_OUTPUT_SCHEMA.match(model.lower().rpartition("/")[2])
        and not any(word in schema for word in ("$ref", *COMBINERS))
    )


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {"name": OUTPUT_NAME, "schema": dict(schema), "strict": is_strict(schema)}
    return {"type": "json_schema", "json_schema": described}


def is_strict(schema: Any) -> bool:
    """Return whether a schema is within the subset that OpenAI enforces: each object closed, with all its properties
    required, and no other keywords. A schema outside it is sent as a wish; the answer is checked here in any case.
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return False
    if not schema.keys() <= _STRICT_KEYWORDS:
        return False
    properties = untrusted_json.fields(schema.get("properties"))
    kinds = schema.get("type")
    is_object = kinds == "object" or "properties" in schema
    is_closed = schema.get("additionalProperties") is False and {*properties} == {*schema.get("required", ())}
    if is_object and not is_closed:
        return False
    parts = [*properties.values(), *untrusted_json.fields(schema.get("$defs")).values()]
    parts += [schema[word] for word in ("items", "anyOf") if word in schema]
    return all(map(is_strict, parts))


def has_vision(model: str, dialect: Dialect) -> bool:
    """Return whether a model accepts images: not the first generations and not the small reasoning ones."""
    return dialect.supports_vision and not _WITHOUT_VISION.match(model.lower().rpartition("/")[2])


def _system(blocks: Sequence[SystemBlock]) -> list[dict[str, Any]]:
    text = "\n\n".join(block.text for block in blocks if block.text)
    return [{"role": "system", "content": text}] if text else []


def _tool(tool: ToolSpec) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": flatten_schema(tool.input_schema)}
    return {"type": "function", "function": function}


def _user(message: Message) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call_id_for_wire(block.tool_use_id), "content": text_of(block)}
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]
    texts = [text_of(block) for block in message.blocks if isinstance(block, TextBlock)]
    if any(isinstance(block, ImageBlock) for block in message.blocks):
        result.append({"role": "user", "content": _parts(message)})
    elif texts or not result:
        result.append({"role": "user", "content": "\n".join(texts)})
    return result


def _parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": text_of(block)})
        elif isinstance(block, ImageBlock):
            url = f"data:{block.media_type};base64,{data_of(block)}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _assistant(message: Message, dialect: Dialect, provider: str) -> list[dict[str, Any]]:
    state, states = openai_state.unpack(message.reasoning_signature, provider)
    text = "".join(text_of(block) for block in message.blocks if isinstance(block, TextBlock))
    calls: list[dict[str, Any]] = [
        {
            "id": call_id_for_wire(block.id),
            "type": "function",
            "function": {"name": tool_name_for_wire(block.name), "arguments": arguments_for_wire(block.input)},
            **untrusted_json.fields(states.get(block.id)),
        }
        for block in message.blocks
        if isinstance(block, ToolUseBlock)
    ]
    result: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, **state}
    if calls:
        result["tool_calls"] = calls
    if dialect.echoes_reasoning and _has_own_reasoning(message):
        result["reasoning_content"] = message.reasoning
    return [result]


def _has_own_reasoning(message: Message) -> bool:
    """Return whether the reasoning is this wire's; signed reasoning is another provider's and has no meaning here."""
    signature = message.reasoning_signature
    return bool(message.reasoning) and (not signature or signature.startswith(openai_state.PREFIX))


def _called_without_reasoning(messages: Sequence[Message]) -> bool:
    """Return whether an assistant message called tools without reasoning: a thinking model refuses
    such a conversation.
    """
    return any(
        message.role == "assistant"
        and not _has_own_reasoning(message)
        and any(isinstance(block, ToolUseBlock) for block in message.blocks)
        for message in messages
    )


def _sampling(sampling: Sampling, *, reasoning: bool) -> dict[str, object]:
    options: dict[str, object | None] = {"seed": sampling.seed}
    if not reasoning:
        options |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "stop": list(sampling.stop[:MAX_STOPS]) or None,
        }
    return {name: value for name, value in options.items() if value is not None}
