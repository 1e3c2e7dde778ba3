import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.tools.line_matcher import Line, LineMatcher, add_context
from loomlog.connectors.tools.results import ToolCallRefused


def matcher(pattern: str, *, ignore_case: bool = False, multiline: bool = False) -> LineMatcher:
    return LineMatcher(pattern, ignore_case=ignore_case, multiline=multiline)


def numbers(pattern: str, data: bytes, **options: bool) -> list[int]:
    return [line.number for line in matcher(pattern, **options).lines(data)]


@pytest.mark.parametrize(
    ("pattern", "data", "expected"),
    [
        ("b", b"a\nb\nab\n", [2, 3]),
        ("^b", b"a\nb\nab", [2]),
        ("b$", b"b\nba\nab", [1, 3]),
        (r"a\sb", b"a\nb\na b\n", [3]),
        ("a[^x]b", b"a\nb\naxb\nayb", [4]),
        ("", b"a\n\nb\n", [1, 2, 3]),
        ("^$", b"a\n\nb\n", [2]),
        ("x*", b"a\nb", [1, 2]),
        ("$", b"a", [1]),
        ("a", b"", []),
        ("", b"", []),
        ("ü.", "aü\nüa".encode(), [2]),
    ],
)
def test_the_lines_that_match(pattern: str, data: bytes, expected: list[int]) -> None:
    assert numbers(pattern, data) == expected


def test_case_is_ignored_when_asked() -> None:
    assert numbers("É", "é".encode(), ignore_case=True) == [1]
    assert numbers("É", "é".encode()) == []


def test_a_match_over_lines_marks_each_of_them_once() -> None:
    data = b"x\nbegin\nmiddle\nend begin\nend\nx\n"
    assert numbers("begin.*?end", data, multiline=True) == [2, 3, 4]
    assert numbers(r"begin\n", data, multiline=True) == [2, 4]
    assert numbers(r"\n\n", b"a\n\nb\n", multiline=True) == [1, 2]


def test_a_pattern_that_only_wrapping_would_make_valid_is_refused() -> None:
    with pytest.raises(ToolCallRefused, match="not usable: unexpected \\)"):
        matcher("a)(b")
    with pytest.raises(ToolCallRefused, match="not usable: invalid perl operator"):
        matcher("(?=a)")


def test_a_line_end_in_a_pattern_needs_multiline() -> None:
    with pytest.raises(ToolCallRefused, match="multiline"):
        matcher("a\nb")
    assert numbers("a\nb", b"a\nb", multiline=True) == [1, 2]


texts = st.text(alphabet="ab\n", max_size=30)


@given(st.sampled_from(["a", "^a", "a$", "b*", "ab|ba", "^$", "a.b", "[^a]"]), texts)
def test_one_search_over_all_finds_what_a_search_of_each_line_finds(pattern: str, text: str) -> None:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    expected = [number for number, line in enumerate(lines, 1) if re.search(pattern, line)]
    actual = list(matcher(pattern).lines(text.encode()))
    assert [line.number for line in actual] == expected
    assert [text[line.start : line.end] for line in actual] == [lines[number - 1] for number in expected]
    assert matcher(pattern).has_match(text.encode()) == bool(expected)


@given(texts, st.integers(0, 3), st.integers(0, 3))
def test_context_lines_come_once_in_order_with_gaps_marked(text: str, before: int, after: int) -> None:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    matching = {number for number, line in enumerate(lines, 1) if "a" in line}
    wanted = sorted(
        {near for number in matching for near in range(number - before, number + after + 1) if 1 <= near <= len(lines)}
    )
    expected: list[tuple[int, bool] | None] = []
    for previous, number in zip([None, *wanted], wanted, strict=False):
        if previous is not None and number > previous + 1:
            expected.append(None)
        expected.append((number, number in matching))
    data = text.encode()
    actual = list(add_context(data, matcher("a").lines(data), before=before, after=after))
    assert [line and (line.number, line.matches) for line in actual] == expected
    assert all(text[line.start : line.end] == lines[line.number - 1] for line in actual if isinstance(line, Line))
