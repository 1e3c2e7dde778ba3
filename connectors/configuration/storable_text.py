"""Text that everything behind a configuration can hold: no U+0000, and no half of a surrogate pair.

YAML takes both as escapes. JSON, which is YAML too, writes a character beyond U+FFFF as a pair of escapes, and a reader
of YAML makes two characters of it; those two are joined here to the one that is meant.

Before: nothing. After: tree.py for every text of a file, load.py and the Markdown files for whole ones.
"""

import re

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")


def join_surrogate_pairs(text: str) -> str:
    """Return the text with each pair of surrogates as the character that it stands for."""
    if text.isascii() or not _PAIR.search(text):
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be"), text)


def describe_text_problem(text: str) -> str:
    """Return what is wrong with a text whose pairs are joined; empty when nothing is."""
    if "\0" in text:
        return "it has the character U+0000, which no text may have"
    if not text.isascii() and (half := _HALF.search(text)):
        return f"it has \\u{ord(half[0]):04x}, half of a surrogate pair, without the other half"
    return ""
