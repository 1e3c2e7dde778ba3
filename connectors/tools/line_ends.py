"""Replacement of text in a file with CR LF, where the old and the new text are written with line feeds.

The file keeps its line ends: a line that stays keeps its own, also in a file that has both, and a line that is new gets
that of the line it takes the place of, or of its neighbour.

Before: edit.py. After: nothing; it is pure.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

CRLF, LF = b"\r\n", b"\n"
_LINE_END = re.compile(rb"\r?\n")


def replace_lines(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return the content with every occurrence of the old text replaced; a line feed of `old` matches both line ends.
    `old` has no CR.
    """
    plain = content.replace(CRLF, LF)
    # The k-th CR LF of the content ends one byte earlier for each before it.
    ends = [match.start() - number for number, match in enumerate(re.finditer(CRLF, content))]
    pieces: list[bytes] = []
    done = at = 0
    while (at := plain.find(old, at)) >= 0:
        start, stop = (place + bisect_left(ends, place) for place in (at, at + len(old)))
        pieces += (content[done:start], _with_line_ends(new, content[start:stop], _nearest_end(content, start, stop)))
        done, at = stop, at + len(old)
    return b"".join([*pieces, content[done:]])


def _nearest_end(content: bytes, start: int, stop: int) -> bytes:
    """Return the line end of the place: in the replaced text, after it, or before it."""
    after = _LINE_END.search(content, start)
    if after is not None:
        return after[0]
    before = content.rfind(LF, 0, start)
    return CRLF if content[:before].endswith(b"\r") else LF


def _with_line_ends(new: bytes, replaced: bytes, default: bytes) -> bytes:
    old_lines, old_ends = _LINE_END.split(replaced), _LINE_END.findall(replaced)
    lines = _LINE_END.split(new)
    count = len(lines) - 1
    same_first = _count_equal(lines[:-1], old_lines[:-1])
    same_last = _count_equal(lines[-2::-1], old_lines[-2::-1])
    ends = []
    for number in range(count):
        from_end = count - number
        if number >= same_first and from_end <= same_last:
            ends.append(old_ends[-from_end])
        else:
            ends.append(old_ends[number] if number < len(old_ends) else default)
    return b"".join([line + end for line, end in zip(lines, [*ends, b""], strict=True)])


def _count_equal(some: Sequence[bytes], others: Sequence[bytes]) -> int:
    """Return how many lines at the beginning are equal."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        count += 1
    return count
