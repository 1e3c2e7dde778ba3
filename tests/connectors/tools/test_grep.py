from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools import grep
from loomlog.connectors.tools.grep import build_grep_tool, search_files
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import STOP, binding, context, volume


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def found(root: Path, pattern: str, **more: Any) -> list[str]:
    return search_files({"pattern": pattern, **more}, volume(root), STOP).split("\n")


def content(root: Path, pattern: str, **more: Any) -> list[str]:
    return found(root, pattern, output_mode="content", **more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "root" / "a" / "one.py", "first\nneedle here\nthird\nfourth\nfifth\nneedle again\n")
    put(tmp_path / "root" / "b.txt", "nothing\nNEEDLE\n")
    put(tmp_path / "root" / "a-c.txt", "a needle")
    return tmp_path / "root"


def test_paths_are_the_answer_unless_asked_otherwise(root: Path) -> None:
    assert found(root, "needle") == ["a-c.txt", "a/one.py"]


def test_content_gives_path_line_and_text(root: Path) -> None:
    assert content(root, "needle") == ["a-c.txt:1:a needle", "a/one.py:2:needle here", "a/one.py:6:needle again"]


def test_context_lines_are_marked_by_a_dash_and_gaps_are_shown(root: Path) -> None:
    assert content(root, "needle", **{"-C": 1}) == [
        "a-c.txt:1:a needle",
        "--",
        "a/one.py-1-first",
        "a/one.py:2:needle here",
        "a/one.py-3-third",
        "--",
        "a/one.py-5-fifth",
        "a/one.py:6:needle again",
    ]
    assert content(root, "first", **{"-C": 3, "-A": 1}) == ["a/one.py:1:first", "a/one.py-2-needle here"]
    assert content(root, "third", **{"-B": 1}) == ["a/one.py-2-needle here", "a/one.py:3:third"]


def test_count_gives_matching_lines(root: Path) -> None:
    assert found(root, "needle", output_mode="count", case_insensitive=True) == ["a-c.txt:1", "a/one.py:2", "b.txt:1"]


def test_the_name_filter_looks_at_the_name_only(root: Path) -> None:
    assert found(root, "needle", glob="*.py") == ["a/one.py"]
    with pytest.raises(ToolCallRefused, match='holds a "/"'):
        found(root, "needle", glob="a/*.py")


def test_one_file_can_be_searched(root: Path) -> None:
    assert found(root, "needle", path="a/one.py") == ["a/one.py"]
    with pytest.raises(ToolCallRefused, match="no such file"):
        found(root, "needle", path="gone")


def test_matches_over_lines_need_multiline(root: Path) -> None:
    assert found(root, "third.*fifth") == ["no matches"]
    assert content(root, "third.*fifth", multiline=True) == [
        "a/one.py:3:third",
        "a/one.py:4:fourth",
        "a/one.py:5:fifth",
    ]


def test_head_limit_cuts_and_says_so(root: Path) -> None:
    assert found(root, "needle", head_limit=2) == ["a-c.txt", "a/one.py"]
    footer = "[the first {}; there are more: raise head_limit or narrow the search]"
    assert found(root, "needle", head_limit=1) == ["a-c.txt", footer.format(1)]
    assert content(root, "needle", head_limit=2) == [
        "a-c.txt:1:a needle",
        "a/one.py:2:needle here",
        footer.format(2),
    ]


def test_binary_files_are_left_out(root: Path) -> None:
    put(root / "bin", b"needle\0")
    put(root / "late", b"needle" + b"x" * 9000 + b"\0")
    assert found(root, "needle", glob="[bl]*") == ["late"]


def test_links_that_leave_the_volume_are_left_out(root: Path) -> None:
    put(root.parent / "outside" / "secret", "needle")
    (root / "z-bad").symlink_to("../outside/secret")
    (root / "z-folder").symlink_to("../outside")
    (root / "z-inside").symlink_to("a/one.py")
    (root / "z-dangling").symlink_to("gone")
    (root / "z-a").symlink_to("a")
    assert found(root, "needle") == ["a-c.txt", "a/one.py", "z-inside"]


def test_a_large_file_is_not_searched_and_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "SEARCHED_FILE_BYTES", 10)
    assert found(root, "zzz") == ["no matches", "[not searched, over 10 bytes: a/one.py and 1 more]"]


def test_the_answer_is_cut_at_its_bound(root: Path) -> None:
    put(root / "big", "needle" + "y" * 1000 + "\n")
    for number in range(300):
        put(root / f"big{number}", "needle" + "y" * 1000)
    lines = content(root, "needle", glob="big*", head_limit=1000)
    assert lines[-1] == "[cut at 262144 bytes; there are more: narrow the search]"
    assert len("\n".join(lines).encode()) < 262144 + 100


def test_a_very_long_line_does_not_use_up_the_answer(root: Path) -> None:
    put(root / "min.js", "needle" + "y" * 10_000)
    (line,) = content(root, "needle", glob="min.js")
    assert line.endswith("yyy [1814 more bytes]")


def test_a_file_that_cannot_be_read_is_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "NamePattern", Vanishing(root / "b.txt"))
    assert found(root, "NEEDLE", glob="b.txt") == ["no matches", "[1 files could not be read and were left out]"]


class Vanishing:
    """A name pattern that removes the file it is asked about, as another process might."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, pattern: str) -> "Vanishing":
        return self

    def matches(self, name: str) -> bool:
        if name == self.path.name:
            self.path.unlink()
            return True
        return False


async def test_a_pattern_re2_does_not_take_is_an_error_result(root: Path) -> None:
    tool = build_grep_tool(ThreadPool())
    result = await tool.call({"pattern": "(?<=a)b"}, context(volumes=(binding(root),)))
    assert result.is_error
    assert "RE2" in result.text
    assert tool.effect_class({}) is EffectClass.READ
