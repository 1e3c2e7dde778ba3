import os
from pathlib import Path

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.glob import GLOB_RESULTS, build_glob_tool, find_files
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import STOP, binding, context, volume


def touch(path: Path, changed_s: int = 1_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (changed_s, changed_s))


def found(root: Path, pattern: str, **more: str) -> list[str]:
    return find_files({"pattern": pattern, **more}, volume(root), STOP).split("\n")


def test_the_newest_come_first_then_by_name(tmp_path: Path) -> None:
    touch(tmp_path / "old.py", 1)
    touch(tmp_path / "b.py", 5)
    touch(tmp_path / "d" / "a.py", 5)
    touch(tmp_path / "new.py", 9)
    assert found(tmp_path, "**/*.py") == ["new.py", "b.py", "d/a.py", "old.py"]


def test_nothing_is_left_out_because_of_its_name(tmp_path: Path) -> None:
    touch(tmp_path / ".git" / "config")
    touch(tmp_path / "node_modules" / "x.js")
    assert found(tmp_path, "**/*") == [".git/config", "node_modules/x.js"]


def test_a_hundred_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    for number in range(GLOB_RESULTS + 3):
        touch(tmp_path / f"{number:03}", number)
    lines = found(tmp_path, "*")
    assert lines[:2] == ["102", "101"]
    assert lines[GLOB_RESULTS:] == ["[the 100 newest of 103 matches; narrow the pattern or path to see others]"]


def test_folders_are_found_by_a_final_slash(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "f")
    touch(tmp_path / "f")
    assert found(tmp_path, "*/") == ["a"]
    assert found(tmp_path, "*") == ["f"]


def test_the_pattern_is_relative_to_the_path_and_the_answer_to_the_root(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "b" / "f")
    assert found(tmp_path, "b/*", path="a") == ["a/b/f"]


def test_an_absolute_pattern_inside_the_root_is_taken(tmp_path: Path) -> None:
    touch(tmp_path / "root" / "f")
    assert found(tmp_path / "root", f"{tmp_path}/root/*") == ["f"]
    with pytest.raises(ToolCallRefused, match="leads outside"):
        found(tmp_path / "root", f"{tmp_path}/*")


def test_links_are_listed_only_while_they_stay_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(root / "f")
    touch(tmp_path / "outside" / "secret")
    (root / "good").symlink_to("f")
    (root / "bad").symlink_to("../outside/secret")
    (root / "worse").symlink_to("../outside")
    (root / "dangling").symlink_to("gone")
    assert found(root, "**/*") == ["f", "good"]
    assert found(root, "*/") == ['no matches for "*/" in volume "work"']


def test_a_name_that_breaks_the_line_does_not_break_the_answer(tmp_path: Path) -> None:
    touch(tmp_path / "a\nb")
    assert found(tmp_path, "*") == ["a\\x0ab"]


def test_no_match_is_said(tmp_path: Path) -> None:
    assert found(tmp_path, "*.rs") == ['no matches for "*.rs" in volume "work"']


async def test_the_tool_reads_only(tmp_path: Path) -> None:
    touch(tmp_path / "f")
    tool = build_glob_tool(ThreadPool())
    assert tool.effect_class({}) is EffectClass.READ
    result = await tool.call({"pattern": "*"}, context(volumes=(binding(tmp_path, mode="ro"),)))
    assert (result.text, result.is_error) == ("f", False)
