"""tests/LESSONS.md names tests that exist, for every lesson or the part of the system it waits for."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PARTS = frozenset({"A2A", "memory"})
"""What is not built. A part that is here any more takes its lessons along: its name leaves this list."""
LESSONS = 97
"""Lessons on the page: one that goes has to be taken off here too."""
LESSON = re.compile(r"^- (?P<says>.+?)(?: Part: (?P<part>\w+)\.)?$")
NAMED = re.compile(r"^  - `(?P<path>[^`:]+)::(?P<name>\w+)`$")
LEFT_OUT = re.compile(r"\b(?:pytest\.skip|mark\.skip|mark\.skipif|importorskip)\b")


def lessons() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(lesson, part or nothing, tests) in the order of the page."""
    found: list[tuple[str, str, list[tuple[str, str]]]] = []
    for line in (TESTS / "LESSONS.md").read_text().splitlines():
        if named := NAMED.match(line):
            found[-1][2].append((named["path"], named["name"]))
        elif lesson := LESSON.match(line):
            found.append((lesson["says"], lesson["part"] or "", []))
        else:
            assert not line.lstrip().startswith("-"), f"neither a lesson nor a test: {line}"
    return found


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


def test_every_lesson_has_a_test_or_waits_for_its_part() -> None:
    found = lessons()
    assert len(found) == LESSONS
    assert len({says for says, _, _ in found}) == LESSONS
    assert [says for says, part, tests in found if bool(part) == bool(tests)] == []
    assert {part for _, part, _ in found if part} == PARTS


@pytest.mark.parametrize(("path", "name"), sorted({test for _, _, tests in lessons() for test in tests}))
def test_the_test_of_a_lesson_is_there(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(path), (
        f"tests/LESSONS.md names {path}::{name}, which is gone: name the test that holds it"
    )


def test_nothing_is_left_out() -> None:
    """A test that can be skipped is green when nothing was tested."""
    here = Path(__file__)
    found = [
        f"{path.relative_to(TESTS)}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != here
        for line in path.read_text().splitlines()
        if LEFT_OUT.search(line)
    ]
    assert found == []
