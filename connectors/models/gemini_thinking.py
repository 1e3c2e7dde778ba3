"""Gemini's thoughts: which models think and how much, and how signed parts are sent back exactly as they came.

An answer of Gemini is a list of parts (text, thoughts, calls), any of which may carry a signature of the thinking
before it. The newest models refuse a conversation in which the call of a step has lost its own. A Reply has one text,
one reasoning and one signature, so the signature carries the layout: "gemini:" and a list of the parts in order, each
with how many characters of the text or the reasoning it has, or the id of its call, and its signature.

    ["text", characters, signature]   ["thought", characters, signature]   ["call", call id, signature]

Nobody but this file reads it. Thoughts without a signature are summaries for people and are not sent back.

Before: gemini_reply writes it. After: gemini_request reads it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from loomlog.connectors.models import untrusted_json

LAYOUT_PREFIX = "gemini:"
BUDGET_TOKENS: Mapping[str, int] = {"low": 0, "medium": 2048, "high": 8192}
"""Thinking budgets by effort (runtime parity 2.4)."""
ANSWER_TOKENS = 1024
"""What must be left of max_tokens for the answer: thoughts count against it."""
FIRST_GENERATION = ("gemini-pro", "gemini-pro-vision")
"""Names without a version that are no aliases."""
FIRST_THINKING = (2, 5)
FIRST_SIGNED = (3, 0)
"""From this version on a call without a signature is refused, unless it carries FOREIGN_SIGNATURE."""
FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""What the API documents for calls that another model made."""
MIN_PRO_TOKENS = 128
"""Pro models, and all from FIRST_SIGNED on, cannot be kept from thinking; this is their least."""
MIN_LITE_TOKENS = 512
"""The least budget of the lite models other than none."""
NON_THINKING_MARKERS = ("image", "tts", "embedding", "live", "audio", "aqa", "robotics", "computer-use")
"""Parts of the names of models that are for something else."""
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")

Part = tuple[str, int | str, str]


def model_version(model: str) -> tuple[int, int]:
    """Of the name; (0, 0) for other families, and the newest for names without one, which are aliases of it."""
    name = model.lower()
    found = _VERSION.search(name)
    if found:
        return int(found[1]), int(found[2] or 0)
    if name in FIRST_GENERATION:
        return 1, 0
    return FIRST_SIGNED if name.startswith("gemini-") else (0, 0)


def budget_tokens(model: str, effort: str, max_tokens: int) -> int | None:
    """The thinking budget to ask for; None when none can be asked for, 0 when the model is not to think."""
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
    """The signature for parts in the order they came; empty when none of them is signed."""
    return LAYOUT_PREFIX + orjson.dumps(parts).decode() if any(signature for _, _, signature in parts) else ""


def unpack(
    signature: str, reasoning: str, text: str, calls: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The parts of the message as they came. `calls` are its functionCall parts by their id.

    None when it is not ours, or when the message was changed since: then the signatures must stay away.
    """
    if not signature.startswith(LAYOUT_PREFIX):
        return None
    try:
        layout = untrusted_json.items(untrusted_json.decode(signature[len(LAYOUT_PREFIX) :].encode()))
    except ValueError:
        return None
    parts: list[dict[str, Any]] = []
    thought = said = 0
    unused = dict(calls)
    for entry in layout:
        match entry:
            case ["text", int(size), str(own)]:
                if own or text[said : said + size]:
                    parts.append({"text": text[said : said + size], **_signature_field(own)})
                said += size
            case ["thought", int(size), str(own)]:
                if own:
                    parts.append(
                        {"text": reasoning[thought : thought + size], "thought": True, **_signature_field(own)}
                    )
                thought += size
            case ["call", str(call_id), str(own)] if call_id in unused:
                parts.append({**unused.pop(call_id), **_signature_field(own)})
            case _:
                return None
    return parts if (thought, said) == (len(reasoning), len(text)) and not unused else None


def _signature_field(signature: str) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}
