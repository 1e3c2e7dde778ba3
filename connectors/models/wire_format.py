"""Conversions of conversations and answers that all wires need.

Outgoing: loaded text, and ids, names and arguments that any provider accepts, also when another one invented them.
Incoming: the rules of Reply that do not depend on the wire. Tool calls are in a Reply exactly when its stop reason is
tool_use: an answer cut by max_tokens may contain a call cut in the middle, which is never run, and a call without a
result makes the conversation illegal for every provider.

Before: the drivers. After: nothing; it is pure.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

import orjson

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import Capabilities, ModelRequest
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import ToolCall
from loomlog.schemas.records import replace

MAX_TOOL_NAME_CHARACTERS = 64
"""Longest function name that OpenAI accepts; no tool name of loomlog is longer."""
GENERATED_ID_PREFIX = "lc-"
"""Prefix of generated call ids."""
_INVALID_TOOL_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")


def text_of(block: TextBlock | ToolResultBlock) -> str:
    """Return the text of a block that must have been loaded from the blob store before the call."""
    assert block.text or block.blob is None or block.blob.size_bytes == 0, "a blob was not loaded before the call"
    return block.text


def data_of(block: ImageBlock) -> str:
    """Return the base64 of an image that must have been loaded as well."""
    assert block.data or block.blob is None, "an image was not loaded before the call"
    return block.data


def call_id_for_wire(call_id: str) -> str:
    """Return an id that every provider accepts: the same one if possible, else a hash of it, the same each time."""
    if _CALL_ID.match(call_id):
        return call_id
    return GENERATED_ID_PREFIX + hashlib.sha256(call_id.encode()).hexdigest()[:32]


def tool_name_for_wire(name: str) -> str:
    """Return the name of an earlier call as every provider accepts it: unchanged if possible. A model may have invented
    it.
    """
    return _INVALID_TOOL_NAME_CHARACTER.sub("_", name)[:MAX_TOOL_NAME_CHARACTERS] or "_"


def arguments_for_wire(arguments: str) -> str:
    """Return the arguments of an earlier call as the JSON object providers require; other text of a model is kept
    inside one.
    """
    try:
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({"invalid_json": arguments}).decode()


def encode_body(provider: str, body: dict[str, object]) -> bytes:
    """Return the request body. Raises Permanent(invalid) for values JSON cannot represent, such as half a surrogate
    pair.
    """
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise Permanent(f"{provider}: the request cannot be written as JSON: {error}", kind="invalid") from error


def has_image(messages: Iterable[Message]) -> bool:
    return any(isinstance(block, ImageBlock) for message in messages for block in message.blocks)


def restrict_to_capabilities(
    request: ModelRequest, capabilities: Capabilities, *, effort_is_thinking: bool = False
) -> ModelRequest:
    """Return the request without the options that the provider's capabilities rule out, as configured for a gateway: an
    effort, and marks for a prompt cache.
    """
    if request.effort and not (
        capabilities.supports_effort and (capabilities.supports_thinking or not effort_is_thinking)
    ):
        request = replace(request, effort="")
    if not capabilities.native_prompt_cache and any(block.cacheable for block in request.system):
        request = replace(request, system=tuple(replace(block, cacheable=False) for block in request.system))
    return request


def check_vision(provider: str, request: ModelRequest, *, has_vision: bool) -> None:
    """Raise Permanent(unsupported) when the conversation contains an image and the model has no vision."""
    if not has_vision and has_image(request.messages):
        raise Permanent(
            f"{provider}: the conversation contains an image and the model {request.model} cannot see images;"
            " choose a model with vision",
            kind="unsupported",
        )


def check_key(provider: str, key: str, *, is_required: bool) -> None:
    """Raise Permanent(refused) when the provider requires a key and none is configured."""
    if is_required and not key:
        raise Permanent(
            f"{provider}: no API key is configured for this provider; set the variable its api_key_env names",
            kind="refused",
        )


def broken_answer(provider: str, problem: str) -> Transient:
    """Return the failure for an answer that no provider sends on purpose: it is discarded, and another attempt usually
    works.
    """
    return Transient(f"{provider}: the answer was broken: {problem}", kind="broken_off")


def normalise_calls(
    provider: str, calls: Sequence[ToolCall], stop_reason: str, request: ModelRequest
) -> tuple[tuple[ToolCall, ...], str]:
    """Return the calls with ids unique in the run, and the matching stop reason. Raises Transient for an answer that
    lost a call on its way, or the name of one: without it the run would end, or go on, as if it had been whole.

    Ids are kept when possible. Ids that a provider omits, repeats, or restarts from call_0 each turn are generated: a
    hash of the call id of the turn and the position, so the same attempt gets the same ids.
    """
    if stop_reason == "tool_use" and not calls:
        raise broken_answer(provider, "it ended in order to call tools, and there is no call in it")
    if stop_reason in ("end_turn", "tool_use"):
        stop_reason = "tool_use" if calls else "end_turn"
    if stop_reason != "tool_use":
        return (), stop_reason
    used = {block.id for message in request.messages for block in message.blocks if isinstance(block, ToolUseBlock)}
    result = []
    for position, call in enumerate(calls):
        if not call.name:
            raise broken_answer(provider, f"its call {position + 1} of {len(calls)} names no tool")
        call_id = call.id
        if not call_id or call_id in used:
            call_id = f"{GENERATED_ID_PREFIX}{hashlib.sha256(request.call_id.encode()).hexdigest()[:16]}-{position}"
        used.add(call_id)
        result.append(ToolCall(id=call_id, name=call.name, input=call.input.strip() or "{}"))
    return tuple(result), stop_reason
