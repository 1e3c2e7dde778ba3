"""Matching lines of a file, found with RE2 over the whole content instead of line by line.

One search over megabytes costs as much as a few hundred calls for single lines, and most files do not match at all. So
the pattern gets `(?m)` and may not match a line end, which returns the lines that `grep` would; after a match the
search continues after the end of its line. In multiline mode a match may span lines, `.` matches line ends, and every
line that the match touches is a matching line.

Before: grep.py. After: path_patterns.py compiles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.tools.path_patterns import compile_regex
from loomlog.connectors.tools.results import ToolCallRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the content: its number, from 1, and the start and end of its text, without the line end."""

    number: int
    start: int
    end: int
    matches: bool = True


class LineMatcher:
    """A compiled pattern. Raises ToolCallRefused when RE2 rejects the pattern."""

    def __init__(self, pattern: str, *, ignore_case: bool, multiline: bool) -> None:
        what = "The pattern (RE2 syntax, no look-around, no back-references)"
        within_lines = not multiline
        # Compiled unwrapped first: wrapping would make a pattern such as `a)(b` valid.
        compile_regex(pattern, what, within_lines=within_lines, ignore_case=ignore_case)
        wrapped = f"(?m:{pattern})"
        self._regexp: Any = compile_regex(wrapped, what, within_lines=within_lines, ignore_case=ignore_case)
        if within_lines and "\n" in pattern:
            raise ToolCallRefused("The pattern holds a line end, which can match only with multiline set to true.")

    def has_match(self, data: bytes) -> bool:
        return next(self.spans(data), None) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match; at most one match begins in a line."""
        at = 0
        while at < len(data):
            match = self._regexp.search(data, at)
            if match is None:
                return
            start, end = match.span()
            if start == len(data) and data[start - 1] == 10:
                # An empty match after the last line end is in no line.
                return
            yield start, end
            last = max(start, end - 1)
            at = _line_end(data, last) + 1

    def lines(self, data: bytes) -> Iterator[Line]:
        """Yield the matching lines in order, each once."""
        number, counted = 1, 0
        for start, end in self.spans(data):
            begin = data.rfind(b"\n", 0, start) + 1
            number += data.count(b"\n", counted, begin)
            while True:
                stop = _line_end(data, begin)
                yield Line(number=number, start=begin, end=stop)
                counted = begin
                if stop >= end - 1 or stop + 1 >= len(data):
                    break
                begin = stop + 1
                number += 1
                counted = begin


def add_context(data: bytes, matches: Iterator[Line], *, before: int, after: int) -> Iterator[Line | None]:
    """Yield the matching lines with their context, each line once, in order. None marks a gap between groups."""
    last: Line | None = None
    for match in matches:
        if last is not None:
            for line in _lines_after(data, last, after):
                if line.number >= match.number:
                    break
                yield line
                last = line
        missing = match.number - (last.number if last else 0) - 1
        lead = list(_lines_before(data, match, min(before, missing)))
        if last is not None and len(lead) < missing:
            yield None
        yield from reversed(lead)
        yield match
        last = match
    if last is not None:
        yield from _lines_after(data, last, after)


def _lines_after(data: bytes, line: Line, count: int) -> Iterator[Line]:
    number, end = line.number, line.end
    for _ in range(count):
        start = end + 1
        if start >= len(data):
            return
        number, end = number + 1, _line_end(data, start)
        yield Line(number=number, start=start, end=end, matches=False)


def _lines_before(data: bytes, line: Line, count: int) -> Iterator[Line]:
    """Yield up to `count` preceding lines, the nearest first."""
    number, start = line.number, line.start
    for _ in range(count):
        if start == 0:
            return
        end = start - 1
        number, start = number - 1, data.rfind(b"\n", 0, end) + 1
        yield Line(number=number, start=start, end=end, matches=False)


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end
