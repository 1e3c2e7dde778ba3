"""Gemini's thoughts: which models think and how much, and how signed parts are sent back exactly as received.

An answer of Gemini is a list of parts (text, thoughts, calls), any of which may have a signature of the thinking before
it. The newest models refuse a conversation in which the call of a step has lost its own. A Reply has one text, one
reasoning and one signature, so the signature carries the layout: "gemini:" and a list of the parts in order, each with
how many characters of the text or the reasoning it has, or the id of its call, and its signature.

    ["text", characters, signature]   ["thought", characters, signature]   ["call", call id, signature]
    ["other", the part itself, its signature, which is in it]

Only this file reads it. Thoughts without a signature are summaries for people and are not sent back.

Before: gemini_reply writes it. After: gemini_request reads it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.models import untrusted_json

LAYOUT_PREFIX = "gemini:"
BUDGET_TOKENS: Mapping[str, int] = {"low": 0, "medium": 2048, "high": 8192}
"""Thinking budgets in tokens by effort (runtime parity 2.4)."""
ANSWER_TOKENS = 1024
"""Tokens of max_tokens reserved for the answer, since thoughts count against it."""
FIRST_GENERATION = ("gemini-pro", "gemini-pro-vision")
"""Names without a version that are not aliases."""
FIRST_THINKING = (2, 5)
FIRST_SIGNED = (3, 0)
"""First version that refuses a call without a signature, unless it has FOREIGN_SIGNATURE."""
FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Signature that the API documents for calls made by another model."""
MIN_PRO_TOKENS = 128
"""Least thinking budget in tokens of pro models, and of all from FIRST_SIGNED on; their thinking cannot be switched
off.
"""
MIN_LITE_TOKENS = 512
"""Least budget in tokens of the lite models, other than none."""
NON_THINKING_MARKERS = ("image", "tts", "embedding", "live", "audio", "aqa", "robotics", "computer-use")
"""Name parts of models for other purposes."""
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")

KEPT_PARTS = ("executableCode", "codeExecutionResult")
"""Fields of parts without a place in a Reply that go back as they came. Media are left out: they belong in no log."""

Part = tuple[str, int | str | Mapping[str, Any], str]


def model_version(model: str) -> tuple[int, int]:
    """Return the version in the name; (0, 0) for other families, the newest for names without one, which are aliases of
    it.
    """
    name = model.lower()
    match = _VERSION.search(name)
    if match:
        return int(match[1]), int(match[2] or 0)
    if name in FIRST_GENERATION:
        return 1, 0
    return FIRST_SIGNED if name.startswith("gemini-") else (0, 0)


def budget_tokens(model: str, effort: str, max_tokens: int) -> int | None:
    """Return the thinking budget to request; None when none can be requested, 0 when the model must not think."""
    model = model.lower()
    if (
        effort not in BUDGET_TOKENS
        or model_version(model) < FIRST_THINKING
        or any(part in model for part in NON_THINKING_MARKERS)
    ):
        return None
    always = "pro" in model or model_version(model) >= FIRST_SIGNED
    least = MIN_LITE_TOKENS if "lite" in model and not always else MIN_PRO_TOKENS
    budget = BUDGET_TOKENS[effort]
    if max_tokens:
        budget = min(budget, max_tokens - ANSWER_TOKENS)
    if budget < least:
        return MIN_PRO_TOKENS if always else 0
    return budget


def pack(parts: Sequence[Part]) -> str:
    """Return the signature for parts in the order received; empty when text and calls say all there is to send back."""
    has_more = any(signature or kind == "other" for kind, _, signature in parts)
    return LAYOUT_PREFIX + untrusted_json.encode(parts) if has_more else ""


def unpack(
    signature: str, reasoning: str, text: str, calls: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return the parts of the message as received. `calls` are its functionCall parts by their id.

    None when the signature is not Gemini's, or when the message was changed since; then the signatures must be left
    out.
    """
    if not signature.startswith(LAYOUT_PREFIX):
        return None
    try:
        layout = untrusted_json.items(untrusted_json.decode(signature[len(LAYOUT_PREFIX) :].encode()))
    except ValueError:
        return None
    parts: list[dict[str, Any]] = []
    thought = text_offset = 0
    unused = dict(calls)
    for entry in layout:
        match entry:
            case ["text", int(size), str(own)]:
                if own or text[text_offset : text_offset + size]:
                    parts.append({"text": text[text_offset : text_offset + size], **_signature_field(own)})
                text_offset += size
            case ["thought", int(size), str(own)]:
                if own:
                    parts.append(
                        {"text": reasoning[thought : thought + size], "thought": True, **_signature_field(own)}
                    )
                thought += size
            case ["call", str(call_id), str(own)] if call_id in unused:
                parts.append({**unused.pop(call_id), **_signature_field(own)})
            case ["other", dict(part), str()]:
                parts.append(part)
            case _:
                return None
    return parts if (thought, text_offset) == (len(reasoning), len(text)) and not unused else None


def _signature_field(signature: str) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}
