import os
from pathlib import Path

import pytest

from loomlog.connectors.tools import file_walk
from loomlog.connectors.tools.file_walk import FileWalk
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import CancellationToken, Deadline, WorkCancelled
from tests.connectors.tools.given import STOP, volume


def paths(found: FileWalk, *start: str) -> list[str]:
    return ["/".join(entry.parts) for entry in found.iterate(start, lambda folder: True)]


def test_everything_comes_in_the_order_of_the_full_paths(tmp_path: Path) -> None:
    for path in ("a/z", "a-b", "a.b", "a/b/c", "b", ".git/config"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    files = [path for path in paths(FileWalk(volume(tmp_path), STOP)) if (tmp_path / path).is_file()]
    assert files == sorted(files) == [".git/config", "a-b", "a.b", "a/b/c", "a/z", "b"]


def test_kinds_are_told_and_links_not_entered(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "f").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "circle").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    entries = FileWalk(volume(tmp_path), STOP).iterate((), lambda folder: True)
    assert [("/".join(entry.parts), entry.kind) for entry in entries] == [
        ("circle", "link"),
        ("folder", "folder"),
        ("folder/f", "file"),
        ("link", "link"),
        ("pipe", "other"),
    ]


def test_a_walk_over_too_many_entries_is_cut_and_says_so(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "f").touch()
    walk = FileWalk(volume(tmp_path), STOP, max_entries=12)
    assert paths(walk) == ["0", "0/f", "1", "1/f", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert walk.footers == ["[cut: the search looked at 12 entries and then stopped; narrow the path or pattern]"]


def test_a_walk_that_takes_too_long_is_stopped_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    walk = FileWalk(volume(tmp_path), STOP, deadline=Deadline(0))
    assert paths(walk) == []
    assert walk.footers == ["[stopped after 20 s: later files were not seen; narrow the path or pattern]"]


def test_a_cancelled_walk_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    stop = CancellationToken()
    stop.cancel()
    with pytest.raises(WorkCancelled):
        paths(FileWalk(volume(tmp_path), stop))


def test_a_folder_that_becomes_a_link_while_it_is_walked_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "b").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    walk = FileWalk(volume(tmp_path / "root"), STOP)
    seen = []
    for entry in walk.iterate((), lambda folder: True):
        seen.append(entry.parts)
        if entry.parts == ("a",):
            (tmp_path / "root" / "b").rmdir()
            (tmp_path / "root" / "b").symlink_to("../outside")
    assert seen == [("a",), ("b",)]
    assert walk.footers == ["[1 folders could not be opened and were left out]"]


def test_a_start_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolCallRefused, match="no such file"):
        paths(FileWalk(volume(tmp_path), STOP), "gone")


def test_bounds_are_below_the_tools_time_out() -> None:
    from loomlog.connectors.tools.file_tool import FILE_TIMEOUT_S

    assert file_walk.WALK_TIMEOUT_S < FILE_TIMEOUT_S
