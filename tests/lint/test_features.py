"""The list of features: the pages show it, and what the program warns about is what it calls missing."""

from pathlib import Path

import pytest

from loomlog.connectors.configuration.unsupported_keys import (
    EXTERNAL_TOOL_PREFIXES,
    UNSUPPORTED_AGENT_KEYS,
    UNSUPPORTED_BLOCKS,
    UNSUPPORTED_SETTINGS,
    UNSUPPORTED_TOOLS,
)
from tests.lint import features
from tests.lint.features import COMPARISON, README, feature_pages, load_areas

TABLES = (UNSUPPORTED_BLOCKS, UNSUPPORTED_AGENT_KEYS, UNSUPPORTED_TOOLS, EXTERNAL_TOOL_PREFIXES)
SOLVED_OTHERWISE = frozenset({"scopes of definitions of skills"})
"""Features that will not come, besides those that say in brackets what is here instead."""


def missing() -> dict[str, tuple[str, ...]]:
    return {name: entries for area in load_areas() for name, entries in area.missing.items()}


@pytest.mark.parametrize("page", [README, COMPARISON], ids=lambda page: page.name)
def test_a_page_shows_the_list_as_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert feature_pages()[page] == text, "run python -m tests.lint.references"
    words = " ".join(text.split())
    assert [name for name in missing() if name not in words] == []


def test_what_files_may_name_and_is_not_built_is_missing() -> None:
    warned = {feature for table in TABLES for feature in table.values() if "(" not in feature}
    named = {entry for entries in missing().values() for entry in entries}
    assert warned - named == SOLVED_OTHERWISE


def test_what_is_on_the_list_as_missing_is_not_built() -> None:
    known = {feature for table in (*TABLES, UNSUPPORTED_SETTINGS) for feature in table.values()}
    built = {name for name, entries in missing().items() if not set(entries) <= known}
    assert built == set(), "they left unsupported_keys.py, so they leave the list"
    works = " ".join(area.works for area in load_areas()).lower()
    assert [name for name in missing() if name.lower() in works] == []


def test_a_page_without_the_marks_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# loomlog\n")
    monkeypatch.setattr(features, "README", tmp_path / "README.md")
    with pytest.raises(ValueError, match=r"README\.md needs one part between"):
        feature_pages()
