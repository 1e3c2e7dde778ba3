"""Conversion of a ModelRequest to the body of POST /models/{model}:streamGenerateContent.

Pure: the same request produces the same bytes. Gemini matches results with calls by the name of the function, in order,
and by id where it assigned one; it requires them as the whole next turn, so the rest of a user's message follows in a
message of its own. The system prompt is a field, not a message. A tool without arguments has no schema at all, and
every other schema goes through gemini_schema. An option that a model lacks is dropped and is not an error (parity
1.18).

Before: gemini. After: the wire.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from loomlog.connectors.models import gemini_thinking
from loomlog.connectors.models.gemini_schema import sanitise_schema
from loomlog.connectors.models.tool_schema import flatten_schema
from loomlog.connectors.models.wire_format import (
    GENERATED_ID_PREFIX,
    arguments_for_wire,
    data_of,
    text_of,
    tool_name_for_wire,
)
from loomlog.connectors.protocols import ModelRequest, ToolSpec
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import Sampling

MAX_STOPS = 5
"""Stop strings per request; the API refuses more. loomlog allows 8; the first ones are sent."""
FIRST_WITHOUT_PENALTIES = (2, 5)
"""First version for which the API answers penalties with 400."""
MAX_SEED = (1 << 31) - 1
_WITHOUT_VISION = re.compile(r"gemini-pro\Z|gemini-1\.0-pro(?!-vision)|gemma-3-1b|text-|embedding-|aqa\Z")


def body(request: ModelRequest) -> dict[str, object]:
    """Return the body, ready for JSON."""
    names = {block.id: block.name for _, block in _calls(request.messages)}
    own = {block.id for message, block in _calls(request.messages) if _has_gemini_id(message, block)}
    signs = gemini_thinking.model_version(request.model) >= gemini_thinking.FIRST_SIGNED
    contents: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "assistant":
            contents += _content("model", _assistant(message, own, must_sign=signs))
        else:
            contents += _content(
                "user", [_function_response(block, names, own) for block in message.blocks if _is_result(block)]
            )
            contents += _content("user", list(_user_parts(message)))
    result: dict[str, object] = {"contents": contents}
    system = [{"text": block.text} for block in request.system if block.text.strip()]
    if system:
        result["systemInstruction"] = {"parts": system}
    if request.tools:
        result["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        if request.must_call_tool:
            result["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
    generation = _generation(request)
    if generation:
        result["generationConfig"] = generation
    return result


def takes_output_schema(request: ModelRequest) -> bool:
    """Return whether the request can have the schema of the answer: beside functions the API refuses one, and an object
    without properties is none to it.
    """
    schema = request.output_schema
    return not request.tools and schema is not None and "properties" in sanitise_schema(flatten_schema(schema))


def has_vision(model: str) -> bool:
    """Return whether a model accepts images; all do except the first and the smallest."""
    return not _WITHOUT_VISION.match(bare_name(model).lower())


def bare_name(model: str) -> str:
    """Return the name without the "models/" prefix of the API."""
    return model.removeprefix("models/")


def _content(role: str, parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": role, "parts": list(parts)}] if parts else []


def _is_result(block: object) -> bool:
    return isinstance(block, ToolResultBlock)


def _calls(messages: Sequence[Message]) -> Iterator[tuple[Message, ToolUseBlock]]:
    return ((message, block) for message in messages for block in message.blocks if isinstance(block, ToolUseBlock))


def _has_gemini_id(message: Message, block: ToolUseBlock) -> bool:
    """Return whether a call's id was assigned by Gemini: the newest models assign some and require them back; others
    have no ids.
    """
    return message.reasoning_signature.startswith(gemini_thinking.LAYOUT_PREFIX) and not block.id.startswith(
        GENERATED_ID_PREFIX
    )


def _function_response(block: Any, names: Mapping[str, str], gemini_ids: Collection[str]) -> dict[str, Any]:
    text = text_of(block)
    response = {"error": text or "the tool failed without a message"} if block.is_error else {"output": text}
    answered: dict[str, Any] = {
        "name": tool_name_for_wire(block.name or names.get(block.tool_use_id, "")),
        "response": response,
    }
    return {"functionResponse": {**_id_field(block.tool_use_id, gemini_ids), **answered}}


def _id_field(call_id: str, gemini_ids: Collection[str]) -> dict[str, str]:
    return {"id": call_id} if call_id in gemini_ids else {}


def _user_parts(message: Message) -> Iterator[dict[str, Any]]:
    for block in message.blocks:
        if isinstance(block, TextBlock) and text_of(block):
            yield {"text": text_of(block)}
        elif isinstance(block, ImageBlock):
            yield {"inlineData": {"mimeType": block.media_type, "data": data_of(block)}}


def _assistant(message: Message, gemini_ids: Collection[str], *, must_sign: bool) -> list[dict[str, Any]]:
    """Return the parts exactly as Gemini sent them when the message has its signature; otherwise its text and calls
    only.
    """
    calls = {block.id: _function_call(block, gemini_ids) for block in message.blocks if isinstance(block, ToolUseBlock)}
    text = "".join(text_of(block) for block in message.blocks if isinstance(block, TextBlock))
    replayed = gemini_thinking.unpack(message.reasoning_signature, message.reasoning, text, calls)
    if replayed is not None:
        return replayed
    parts = ([{"text": text}] if text else []) + list(calls.values())
    if must_sign and calls:  # the first call of a step must be signed
        first = parts[len(parts) - len(calls)]
        first["thoughtSignature"] = gemini_thinking.FOREIGN_SIGNATURE
    return parts


def _function_call(block: ToolUseBlock, gemini_ids: Collection[str]) -> dict[str, Any]:
    arguments = orjson.Fragment(arguments_for_wire(block.input))
    return {
        "functionCall": {**_id_field(block.id, gemini_ids), "name": tool_name_for_wire(block.name), "args": arguments}
    }


def _tool(tool: ToolSpec) -> dict[str, object]:
    declared: dict[str, object] = {"name": tool.name, "description": tool.description}
    parameters = sanitise_schema(flatten_schema(tool.input_schema))
    if parameters:
        declared["parameters"] = parameters
    return declared


def _generation(request: ModelRequest) -> dict[str, object]:
    result: dict[str, object] = {"maxOutputTokens": request.max_tokens} if request.max_tokens else {}
    budget = gemini_thinking.budget_tokens(request.model, request.effort, request.max_tokens)
    if budget is not None:
        result["thinkingConfig"] = {"thinkingBudget": budget, **({"includeThoughts": True} if budget else {})}
    if request.output_schema is not None:
        schema = sanitise_schema(flatten_schema(request.output_schema))
        result |= {"responseMimeType": "application/json", "responseSchema": schema}
    if request.sampling is not None:
        result.update(_sampling(request.sampling, gemini_thinking.model_version(request.model)))
    return result


def _sampling(sampling: Sampling, version: tuple[int, int]) -> dict[str, object]:
    penalties = version < FIRST_WITHOUT_PENALTIES
    options: dict[str, object | None] = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "frequencyPenalty": sampling.frequency_penalty if penalties else None,
        "presencePenalty": sampling.presence_penalty if penalties else None,
        "seed": None if sampling.seed is None else sampling.seed & MAX_SEED,
        "stopSequences": [stop for stop in sampling.stop if stop][:MAX_STOPS] or None,
    }
    return {name: value for name, value in options.items() if value is not None}
