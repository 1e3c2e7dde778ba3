import fnmatch
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.tools.skill_patterns import MAX_ENTRIES, MAX_ENTRY_LENGTH, deny_everything, parse_patterns


@pytest.mark.parametrize(
    ("entries", "allowed", "refused"),
    [
        ([], ["pdf", "team/pdf"], []),
        (["pdf"], ["pdf"], ["pdf2", "team/pdf", "Pdf"]),
        (["+pdf", "docx"], ["pdf", "docx"], ["xlsx"]),
        (["*"], ["pdf", "team/a/b"], []),
        (["**"], ["pdf", "team/a/b"], []),
        (["p*"], ["pdf", "p"], ["p/df", "team/pdf"]),
        (["?df"], ["pdf"], ["df", "/df", "ppdf"]),
        (["team/*"], ["team/a"], ["team", "team/a/b", "a"]),
        (["team/**"], ["team/a", "team/a/b", "team"], ["teams/a", "a/team/b"]),
        (["**/pdf"], ["pdf", "a/pdf", "a/b/pdf"], ["pdf/a", "apdf"]),
        (["a/**/z"], ["a/z", "a/b/z", "a/b/c/z"], ["a/b", "z", "az"]),
        (["**/**"], ["a", "a/b"], []),
        (["-secret"], ["pdf", "team/secret"], ["secret"]),
        (["-*"], [], ["pdf", "team/pdf"]),
        (["+pdf", "-*"], [], ["pdf", "docx"]),
        (["+*", "-team/**"], ["pdf"], ["team", "team/pdf"]),
        (["-a", "+a"], [], ["a", "b"]),
        (["--a"], ["a"], ["-a"]),
    ],
)
def test_entries_allow_and_refuse_names(entries: list[str], allowed: list[str], refused: list[str]) -> None:
    patterns = parse_patterns(entries)
    assert [name for name in [*allowed, *refused] if patterns.allows(name)] == allowed


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "+",
        "-",
        "a//b",
        "/a",
        "a/",
        "a b",
        "../x",
        "a**",
        "**a/b",
        "a.b",
        "[ab]",
        "a\n",
        "ä",
        "a" * MAX_ENTRY_LENGTH + "b",
    ],
)
def test_an_unusable_entry_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(entry[:60]))):
        parse_patterns(["pdf", entry])


def test_a_list_has_a_bound() -> None:
    with pytest.raises(ValueError, match="at most 256"):
        parse_patterns([f"a{n}" for n in range(MAX_ENTRIES + 1)])


def test_the_longest_list_of_entries_compiles() -> None:
    entries = [f"{n}/" + "a?" * 120 + "*" for n in range(MAX_ENTRIES)]
    assert parse_patterns(entries).allows("255/" + "ab" * 120 + "end")


def test_a_match_takes_linear_time() -> None:
    patterns = parse_patterns(["*a" * 100 + "b", "-" + "**/a/" * 40 + "b"])
    began = time.process_time()
    assert not patterns.allows("a" * 5_000)
    assert not patterns.allows("a/" * 2_500 + "c")
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["-*"], True),
        (["-**"], True),
        (["pdf", "-*"], True),
        ([], False),
        (["-pdf"], False),
        (["*"], False),
        (["-"], False),
    ],
)
def test_a_list_may_deny_everything(entries: list[str], expected: bool) -> None:
    assert deny_everything(entries) is expected


@given(st.text("ab*?", min_size=1, max_size=8).filter(lambda text: "**" not in text), st.text("ab", max_size=8))
def test_one_segment_matches_like_a_shell(pattern: str, name: str) -> None:
    if name:
        assert parse_patterns([pattern]).allows(name) == fnmatch.fnmatchcase(name, pattern)
