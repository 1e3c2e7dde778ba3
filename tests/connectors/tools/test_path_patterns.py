import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.tools.path_patterns import NamePattern, PathPattern, compile_regex
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.volumes import PathParts


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", ".py", True),
        ("*.py", "a.pyc", False),
        ("?", "ü", True),
        ("?", "ab", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[]]", "]", True),
        ("[.]", "a", False),
        ("[", "[", True),
        ("a[b", "a[b", True),
        ("a+(b)", "a+(b)", True),
        ("{a,b}", "a", False),
        ("*", "a\nb", True),
        ("a?b", "a\udcffb", True),
        ("**", "anything", True),
    ],
)
def test_a_name_pattern(pattern: str, name: str, matches: bool) -> None:
    assert NamePattern(pattern).matches(name) == matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("d/**", "d/e/f", True),
        ("d/**", "d", False),
        ("**", "a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/**/b", "a/b", True),
        ("./a//b", "a/b", True),
        ("a/", "a", True),
        ("a/**b/c", "a/xb/c", True),
        ("a/**b/c", "a/x/b/c", False),
    ],
)
def test_a_path_pattern(pattern: str, path: str, matches: bool) -> None:
    assert PathPattern(pattern).matches(tuple(path.split("/"))) == matches


@pytest.mark.parametrize("pattern", ["/", "..", "a/../b", "."])
def test_a_pattern_of_nothing_below_is_refused(pattern: str) -> None:
    with pytest.raises(ToolCallRefused, match="below the folder"):
        PathPattern(pattern)


def test_a_range_that_runs_backwards_is_refused_with_the_reason() -> None:
    with pytest.raises(ToolCallRefused, match="invalid character class range"):
        NamePattern("[z-a]")


def naive(pieces: PathParts, parts: PathParts) -> bool:
    if not pieces:
        return not parts
    if pieces[0] == "**":
        if len(pieces) == 1:
            return bool(parts)
        return naive(pieces[1:], parts) or (bool(parts) and naive(pieces, parts[1:]))
    return bool(parts) and fnmatchcase(parts[0], pieces[0]) and naive(pieces[1:], parts[1:])


pieces = st.lists(st.sampled_from(["**", "*", "a", "b", "a*", "?", "[ab]", "[!a]"]), min_size=1, max_size=5)
paths = st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=6)


@given(pieces, paths)
def test_the_automaton_agrees_with_plain_recursion(pattern: list[str], path: list[str]) -> None:
    path_pattern = PathPattern("/".join(pattern))
    assert path_pattern.matches(tuple(path)) == naive(tuple(pattern), tuple(path))
    if path_pattern.matches(tuple(path)):
        # So a walk enters every folder on the way to a match.
        assert all(path_pattern.may_match_below(tuple(path[:depth])) for depth in range(len(path)))


def test_a_folder_below_which_nothing_can_match_is_not_entered() -> None:
    assert not PathPattern("a/*.py").may_match_below(("b",))
    assert not PathPattern("a/*.py").may_match_below(("a", "c"))


def test_a_pattern_made_to_be_slow_is_not() -> None:
    pattern = NamePattern("*a" * 100 + "b")
    started = time.process_time()
    assert not pattern.matches("a" * 250)
    assert time.process_time() - started < 30


def test_an_expression_that_needs_too_much_memory_is_refused() -> None:
    with pytest.raises(ToolCallRefused, match="It is not usable: pattern too large"):
        compile_regex("(a{1,30}){1,30}" * 500, "It")


def test_repeated_any_folders_are_one() -> None:
    pattern = PathPattern("**/" * 300 + "x")
    assert len(pattern._segments) == 2
    assert pattern.matches(("a", "b", "x"))


def test_a_pattern_of_very_many_segments_is_refused() -> None:
    with pytest.raises(ToolCallRefused, match="600 segments; at most 32"):
        PathPattern("**/a/" * 300)
