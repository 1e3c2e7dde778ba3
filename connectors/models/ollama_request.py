"""Conversion of a ModelRequest to the body of POST /api/chat.

Pure: the same request produces the same bytes. Limits and sampling are `options`; the context window is among them only
when it is pinned, because another one makes Ollama load the model again. Results are messages of role tool with the
tool's name, images are plain base64 next to a user's text, arguments are objects.

Models with vision are known by name only: the wire reports nothing before it fails, and an image that a model ignores
is worse than a refusal. A provider's option `vision_models` adds names.

Before: ollama. After: the wire.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from loomlog.connectors.models.tool_schema import flatten_schema
from loomlog.connectors.models.wire_format import arguments_for_wire, data_of, text_of, tool_name_for_wire
from loomlog.connectors.protocols import ModelRequest, ToolSpec
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import Sampling

CHARACTERS_PER_TOKEN = 4
"""Ratio for estimating whether a prompt fits; off by up to half for code and for languages other than English."""
VISION_MODELS = (
    *("llava", "bakllava", "moondream", "minicpm-v", "llama3.2-vision", "llama4", "gemma3", "gemma4", "qwen2.5vl"),
    *("qwen2-vl", "qwen3-vl", "qwen3.5", "mistral-small3.1", "mistral-small3.2", "mistral-large-3", "ministral-3"),
    *("granite3.2-vision", "kimi-k2.5", "gemini-3", "deepseek-ocr", "devstral-small-2"),
)
"""Name prefixes of models with vision in Ollama's library."""
MODELS_WITHOUT_VISION = ("gemma3:270m", "gemma3:1b")
SCHEMA_TEXT = "Answer with one JSON object that meets this JSON Schema: "
"""Words in front of an output schema: `format` only restricts what the model may write, and does not show it why."""
EFFORT_LEVEL_MODELS = ("gpt-oss",)
"""Models that take a level of thinking instead of on or off."""


def body(request: ModelRequest, *, can_think: bool = True, num_ctx: int = 0, num_gpu: int = -1) -> dict[str, object]:
    """Return the body, ready for JSON. `can_think` False leaves thinking out, for models that have none."""
    messages: list[dict[str, Any]] = []
    texts = [block.text for block in request.system if block.text]
    if request.output_schema is not None:
        texts.append(SCHEMA_TEXT + orjson.dumps(request.output_schema).decode())
    system = "\n\n".join(texts)
    if system:
        messages.append({"role": "system", "content": system})
    for message in request.messages:
        messages += [_assistant(message)] if message.role == "assistant" else _user(message)
    result: dict[str, object] = {"model": request.model, "messages": messages, "stream": True}
    if request.tools:
        result["tools"] = [_tool(tool) for tool in request.tools]
    if request.output_schema is not None:
        result["format"] = dict(request.output_schema)
    think = think_value(request.model, request.effort)
    if think is not None and (can_think or think is False):
        result["think"] = think
    options = _options(request, num_ctx=num_ctx, num_gpu=num_gpu)
    if options:
        result["options"] = options
    return result


def think_value(model: str, effort: str) -> bool | str | None:
    """Return the `think` field for an effort (runtime parity 2.4); None leaves it to the model."""
    if effort not in ("low", "medium", "high"):
        return None
    if bare_name(model).startswith(EFFORT_LEVEL_MODELS):
        return effort
    return effort != "low"


def has_vision(model: str, extra: Sequence[str] = ()) -> bool:
    """Return whether a model accepts images; `extra` has further name prefixes."""
    name = bare_name(model)
    if name.startswith(tuple(extra)):
        return True
    return (name.startswith(VISION_MODELS) or "vision" in name or "-vl" in name) and not name.startswith(
        MODELS_WITHOUT_VISION
    )


def bare_name(model: str) -> str:
    """Return the name in lower case, without the owner or the host in front."""
    return model.lower().rpartition("/")[2]


def estimate_tokens(request: ModelRequest) -> int:
    """Return the estimated tokens of the prompt: system, conversation and tools; images are left out."""
    total = sum(len(block.text) for block in request.system)
    for message in request.messages:
        for block in message.blocks:
            if isinstance(block, (TextBlock, ToolResultBlock)):
                total += len(block.text)
            elif isinstance(block, ToolUseBlock):
                total += len(block.input)
    total += sum(len(tool.description) + len(orjson.dumps(tool.input_schema)) for tool in request.tools)
    return total // CHARACTERS_PER_TOKEN


def _tool(tool: ToolSpec) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": flatten_schema(tool.input_schema)}
    return {"type": "function", "function": function}


def _user(message: Message) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [
        {"role": "tool", "tool_name": tool_name_for_wire(block.name), "content": text_of(block)}
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]
    texts = [text_of(block) for block in message.blocks if isinstance(block, TextBlock)]
    images = [data_of(block) for block in message.blocks if isinstance(block, ImageBlock)]
    if texts or images or not result:
        user_message: dict[str, Any] = {"role": "user", "content": "\n".join(texts)}
        result.append({**user_message, "images": images} if images else user_message)
    return result


def _assistant(message: Message) -> dict[str, Any]:
    """Return the message with its unsigned reasoning: models with visible thinking require it after a tool call."""
    text = "".join(text_of(block) for block in message.blocks if isinstance(block, TextBlock))
    result: dict[str, Any] = {"role": "assistant", "content": text}
    if message.reasoning and not message.reasoning_signature:
        result["thinking"] = message.reasoning
    calls = [
        {
            "function": {
                "name": tool_name_for_wire(block.name),
                "arguments": orjson.Fragment(arguments_for_wire(block.input)),
            }
        }
        for block in message.blocks
        if isinstance(block, ToolUseBlock)
    ]
    return {**result, "tool_calls": calls} if calls else result


def _options(request: ModelRequest, *, num_ctx: int, num_gpu: int) -> dict[str, object]:
    options: dict[str, object | None] = {
        "num_ctx": num_ctx or None,
        "num_gpu": num_gpu if num_gpu >= 0 else None,
        "num_predict": request.max_tokens or None,
    }
    if request.sampling is not None:
        options |= _sampling(request.sampling)
    return {name: value for name, value in options.items() if value is not None}


def _sampling(sampling: Sampling) -> dict[str, object | None]:
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
