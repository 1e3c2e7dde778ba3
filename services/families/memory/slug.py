"""Keys of facts: `memory/<class>/<slug>`, where the slug is readable and tells different texts apart. Pure.

Letters are reduced to those of ASCII. A text that loses anything thereby, such as a Japanese one, or that is too long,
gets a fingerprint of the whole text. The consolidator's script has the same function
(connectors/configuration/presets/memory.yaml); a test compares both.

Before: services/families/consolidation/facts.py. After: nothing.
"""

import re
import unicodedata

SLUG_CHARACTERS_MAX = 60
"""Length of the readable part; what is longer is no help for people."""
DEFAULT_CLASS = "fact"
FACT_PREFIX = "memory/"
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_MARKS = re.compile(r"[\u0300-\u036f]")
_SPACE = re.compile(r"[\s\ufeff]+")
_WORD = re.compile(r"[a-z0-9]+")
_LETTERS = re.compile(r"[^\W_]", re.UNICODE)


def fingerprint(text: str) -> str:
    """Return the FNV-1a hash of the UTF-8 bytes of a text: 16 hex digits."""
    value = _OFFSET
    for byte in text.encode(errors="replace"):
        value = (value ^ byte) * _PRIME & _MASK
    return f"{value:016x}"


def slug(text: str) -> str:
    """Return a name of a to z, 0 to 9 and - for a text; never empty."""
    folded = " ".join(filter(None, _SPACE.split(unicodedata.normalize("NFKC", text).lower())))
    reduced = _MARKS.sub("", unicodedata.normalize("NFKD", folded))
    words = "-".join(_WORD.findall(reduced))
    is_lossless = bool(words) and all(one.isascii() for one in _LETTERS.findall(reduced))
    if is_lossless and len(words) <= SLUG_CHARACTERS_MAX:
        return words
    short = words[:SLUG_CHARACTERS_MAX].rstrip("-")
    return f"{short}-{fingerprint(folded)}" if short else fingerprint(folded)


def fact_key(fact_class: str, subject: str) -> str:
    """Return the key of a fact of a class about a subject."""
    return f"{FACT_PREFIX}{slug(fact_class or DEFAULT_CLASS)}/{slug(subject)}"
