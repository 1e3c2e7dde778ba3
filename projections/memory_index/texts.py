"""The text of an entry: what is indexed of its key and value, and what is embedded.

Before: entries.py, embedding.py. After: tokens.py.
"""

from collections import Counter
from typing import Any

import orjson

from loomlog.projections.memory_index.tokens import TEXT_BYTES_MAX, count_lexemes

EMBED_CHARACTERS_MAX = 8_000
"""Characters of a text that are embedded: about what the smallest of the known models reads."""
KEY_WEIGHT = 2
"""A word of the key counts as often as this in the value: keys are titles."""


def value_text(json_text: str) -> str:
    """Return the names, texts and numbers in a JSON value, one a line; the text itself if it is no JSON."""
    try:
        value = orjson.loads(json_text)
    except orjson.JSONDecodeError:
        return json_text[:TEXT_BYTES_MAX]
    lines: list[str] = []
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        name, one = pending.pop()
        match one:
            case dict():
                pending += [(str(key), item) for key, item in reversed(one.items())]
            case list():
                pending += [(name, item) for item in reversed(one)]
            case bool() | None:
                lines.append(name)
            case _:
                lines.append(f"{name}: {one}" if name else str(one))
    return "\n".join(line for line in lines if line)[:TEXT_BYTES_MAX]


def embedded_text(text: str, embed_text: str) -> str:
    """Return what is embedded of an entry with the text `value_text`; empty when there is nothing."""
    return (embed_text or text).strip()[:EMBED_CHARACTERS_MAX]


def entry_lexemes(key: str, text: str, embed_text: str) -> Counter[str]:
    """Return how often each lexeme is in an entry with the text `value_text`."""
    counts = count_lexemes("\n".join(part for part in (text, embed_text) if part))
    for lexeme, count in count_lexemes(key).items():
        counts[lexeme] += KEY_WEIGHT * count
    return counts
