"""Thinking: what a model accepts, and how an answer with thinking is sent back exactly as it was received.

Claude refuses a continued tool loop whose assistant message is not the one it sent: thinking blocks with their
signatures, redacted ones included, in their places. A Reply has one text, one reasoning and one signature, so the
signature carries the rest. When an answer has one thinking block, at its beginning, it is Claude's unchanged signature;
otherwise it is "layout:" and a list of the blocks in order: how many characters of the reasoning or the text each has,
its own signature or redacted data, or the id of its tool call; blocks of other types are in it whole. Only this file
reads it.

    ["thinking", characters, signature]   ["redacted", data]   ["text", characters]   ["tool", call id]
    ["opaque", block]

Before: anthropic_reply writes it. After: anthropic_request reads it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.models import untrusted_json

LAYOUT_PREFIX = "layout:"
BUDGET_TOKENS = {"medium": 2048, "high": 8192}
"""Thinking budgets in tokens by effort (runtime parity 2.4); low means no thinking."""
MIN_BUDGET_TOKENS = 1024
"""Smallest thinking budget in tokens; the API refuses less."""
ANSWER_TOKENS = 1024
"""Tokens of max_tokens reserved for the answer itself."""
FIRST_ADAPTIVE = (4, 6)
"""First version whose models choose their own depth (`adaptive`); budgets are deprecated from there on."""
FIRST_WITHOUT_BUDGET = (4, 7)
"""First version that refuses budgets, temperature, top_p and top_k."""
_VERSION = re.compile(r"claude-(?:opus|sonnet|haiku)-(\d+)(?:-(\d{1,2}))?(?!\d)")
_OLD = re.compile(r"claude-(?:\d|instant|v\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingTraits:
    """Ways to request thinking from a model, and whether it accepts sampling options."""

    can_think: bool
    is_adaptive: bool
    takes_sampling: bool


def thinking_traits(model: str) -> ThinkingTraits:
    """Return the traits by the model's name. Unknown families are assumed to be new and are treated like the newest."""
    name = model.lower()
    if _OLD.search(name):  # claude-3-7-sonnet was the first that thinks, but with a budget like the others
        return ThinkingTraits(can_think="3-7" in name, is_adaptive=False, takes_sampling=True)
    match = _VERSION.search(name)
    version = (int(match[1]), int(match[2] or 0)) if match else FIRST_WITHOUT_BUDGET
    return ThinkingTraits(
        can_think="haiku" not in name,
        is_adaptive=version >= FIRST_ADAPTIVE,
        takes_sampling=version < FIRST_WITHOUT_BUDGET,
    )


def budget_tokens(effort: str, max_tokens: int) -> int:
    """Return the budget that fits under max_tokens; 0 when the effort has none or too little would be left."""
    budget = min(BUDGET_TOKENS.get(effort, 0), max_tokens - ANSWER_TOKENS)
    return budget if budget >= MIN_BUDGET_TOKENS else 0


def pack(blocks: Sequence[tuple[Any, ...]]) -> str:
    """Return the signature for blocks like those above, in the order received; empty when text and calls say all there
    is to send back.
    """
    kept = [block for block in blocks if block[0] in ("thinking", "redacted", "opaque")]
    if not kept:
        return ""
    if len(kept) == 1 and blocks[0][0] == "thinking":
        return str(blocks[0][2])
    return LAYOUT_PREFIX + untrusted_json.encode(blocks)


def unpack(signature: str, reasoning: str, text: str, calls: dict[str, dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the content blocks of the message as received. `calls` are its tool_use blocks by their original id.

    None when there is nothing to replay, or when the message was changed since and its thinking must not be sent.
    Blocks that Claude refuses are left out too: thinking cut off before its signature, and thinking at the end of a
    message.
    """
    content = _replay_layout(signature, reasoning, text, calls)
    if content is None:
        return None
    content = [block for block in content if not _is_thinking(block) or block.get("signature") or block.get("data")]
    while content and _is_thinking(content[-1]):
        content.pop()
    return content


def _is_thinking(block: dict[str, Any]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _replay_layout(
    signature: str, reasoning: str, text: str, calls: dict[str, dict[str, Any]]
) -> list[dict[str, Any]] | None:
    if not signature:
        return None
    if not signature.startswith(LAYOUT_PREFIX):
        if ":" in signature:
            return None  # Claude's own are base64: this is another provider's layout
        start = [{"type": "thinking", "thinking": reasoning, "signature": signature}]
        return start + ([{"type": "text", "text": text}] if text.strip() else []) + list(calls.values())
    try:
        layout = untrusted_json.items(untrusted_json.decode(signature[len(LAYOUT_PREFIX) :].encode()))
    except ValueError:
        return None
    content: list[dict[str, Any]] = []
    thought = text_offset = 0
    unused = dict(calls)
    for entry in layout:
        match entry:
            case ["thinking", int(size), str(own)]:
                content.append({"type": "thinking", "thinking": reasoning[thought : thought + size], "signature": own})
                thought += size
            case ["redacted", str(data)]:
                content.append({"type": "redacted_thinking", "data": data})
            case ["opaque", dict(block)]:
                content.append(block)
            case ["text", int(size)]:
                if text[text_offset : text_offset + size].strip():
                    content.append({"type": "text", "text": text[text_offset : text_offset + size]})
                text_offset += size
            case ["tool", str(call_id)] if call_id in unused:
                content.append(unused.pop(call_id))
            case _:
                return None
    return content if (thought, text_offset) == (len(reasoning), len(text)) and not unused else None
