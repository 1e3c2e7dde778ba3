"""State that gateways of the OpenAI wire attach to an answer and require back: reasoning blocks, thought signatures.

OpenRouter refuses or forgets reasoning without its `reasoning_details`, and Gemini 3 refuses a call that has lost its
`extra_content`. Nothing of it is understood here: it is kept as it came and goes back to the provider it came from,
with the message and with the call it came with. A Reply has one signature, which carries it: "openai:" and an object
with the provider, the fields of the message, and those of each call by its id. Only this file reads it.

Not chosen: every unknown field of a message. Servers that check their input strictly refuse fields that they send
themselves (`annotations`, `audio`), so the fields that carry state are named. What stands beside the function of a call
has no other purpose, so all of it is kept.

Before: openai_reply writes it. After: openai_request reads it.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.models import untrusted_json

PREFIX = "openai:"
MESSAGE_FIELDS = ("reasoning_details", "thinking_blocks", "extra_content", "provider_specific_fields")
"""Fields of a message that carry state: of OpenRouter, LiteLLM, Google, LiteLLM."""
CALL_FIELDS = frozenset({"index", "id", "type", "function"})
"""Fields of a call that the wire defines; any other carries state."""
TEXT_FIELDS: Mapping[str, str] = {"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}
"""Field of the text, by type of a block of reasoning: such blocks arrive in pieces."""

State = dict[str, Any]


def reasoning_text(delta: Mapping[str, Any]) -> str:
    """Return the text in the blocks of reasoning, possibly with half an emoji at its ends."""
    blocks = (
        *untrusted_json.items(delta.get("reasoning_details")),
        *untrusted_json.items(delta.get("thinking_blocks")),
    )
    texts = [block.get(TEXT_FIELDS.get(str(block.get("type")), "")) for block in map(untrusted_json.fields, blocks)]
    return "".join([text for text in texts if isinstance(text, str)])


def add_message_state(state: State, delta: Mapping[str, Any]) -> None:
    """Add what a piece of a message carries."""
    _merge(state, {name: delta[name] for name in MESSAGE_FIELDS if delta.get(name)})


def add_call_state(state: State, piece: Mapping[str, Any]) -> None:
    """Add what a piece of a call carries."""
    _merge(state, {name: value for name, value in piece.items() if name not in CALL_FIELDS and value})


def pack(provider: str, message: State, calls: Mapping[str, State]) -> str:
    """Return the signature; empty when there is no state. `calls` is the state of each call by its id."""
    kept = {call_id: state for call_id, state in calls.items() if state}
    if not message and not kept:
        return ""
    return PREFIX + untrusted_json.encode({"provider": provider, "message": message, "calls": kept})


def unpack(signature: str, provider: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the state of the message and that of its calls by id; empty ones when it is another provider's."""
    if not signature.startswith(PREFIX):
        return {}, {}
    try:
        packed = untrusted_json.fields(untrusted_json.decode(signature[len(PREFIX) :].encode()))
    except ValueError:
        return {}, {}
    if packed.get("provider") != provider:
        return {}, {}
    return untrusted_json.fields(packed.get("message")), untrusted_json.fields(packed.get("calls"))


def _merge(state: State, new: Mapping[str, Any]) -> None:
    for name, value in new.items():
        known = state.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            for block in value:
                _append(known, block)
        else:
            state[name] = _copy(value)


def _append(blocks: list[Any], block: Any) -> None:
    """Append a block, or the next piece of the last one: one of the same type and place that is not signed yet."""
    last = untrusted_json.fields(blocks[-1]) if blocks else untrusted_json.EMPTY
    field = TEXT_FIELDS.get(str(last.get("type")), "")
    if (
        not field
        or not isinstance(block, dict)
        or last.get("signature")
        or any(block.get(name) != last.get(name) for name in ("type", "index"))
    ):
        blocks.append(_copy(block))
        return
    texts = [text for text in (last.get(field), block.get(field)) if isinstance(text, str)]
    blocks[-1] = {**last, **{name: value for name, value in block.items() if value is not None}}
    if texts:
        blocks[-1][field] = "".join(texts)


def _copy(value: Any) -> Any:
    """Return the value with containers of its own, since later pieces are merged into them."""
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in value.items()}
    if not isinstance(value, list):
        return value
    blocks: list[Any] = []
    for block in value:
        _append(blocks, block)
    return blocks
