"""Words of a text by their stems, as the search index has them. Pure.

Before: extraction.py, stand_in.py. After: projections/memory_index/tokens.py.
"""

import re
from functools import lru_cache

from loomlog.projections.memory_index.tokens import lexemes, normalized

_WORD = re.compile(r"\w+(?:[-:.]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in its order; a number has no marks of thousands."""
    return _WORD.findall(_THOUSANDS.sub("", normalized(text)))


def stems(text: str) -> set[str]:
    """Return the stems of the words of a text."""
    return {*map(stem, words(text))}


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the stem of a word; what has digits stays as it is."""
    return word if any(map(str.isdigit, word)) else next(lexemes(word), word)
