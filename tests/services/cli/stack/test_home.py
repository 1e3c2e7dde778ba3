import errno
import os
import stat
from pathlib import Path

import pytest

from loomlog.services.cli.stack.errors import DiskFull, StackError
from loomlog.services.cli.stack.home import (
    FORMAT,
    MINIMUM_FREE_BYTES,
    RESTART_FREE_BYTES,
    open_home,
    require_space,
    write_atomically,
)


def test_a_folder_is_made_with_all_its_parts(tmp_path: Path) -> None:
    home = open_home(tmp_path / "a" / "b")
    assert all(folder.is_dir() for folder in (home.root, home.cache, home.logs, home.kafka, home.postgres))
    assert (home.root / ".gitignore").read_text() == "*\n"
    assert open_home(home.root) == home


def test_the_log_and_what_processes_print_are_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)  # of an earlier version
    home = open_home(tmp_path)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (home.kafka, home.logs)] == [0o700, 0o700]


def test_a_cache_can_be_shared(tmp_path: Path) -> None:
    home = open_home(tmp_path / "state", cache=tmp_path / "cache")
    assert home.cache == tmp_path / "cache"
    assert home.cache.is_dir()


def test_a_linked_cache_is_used_by_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cache").symlink_to(tmp_path / "cache")
    assert open_home(tmp_path / "state").cache == tmp_path / "cache"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StackError, match=r"file/state cannot be written: .*Not a directory.*set LOOMLOG_HOME"):
        open_home(tmp_path / "file" / "state")


@pytest.mark.parametrize("name", ["a:b", "a,b", "a\nb"])
def test_a_path_that_java_or_kafka_would_split_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StackError, match="in its path, which Java and Kafka cannot take"):
        open_home(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_too_little_room_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"MiB free; at least [\d,]+ MiB are needed, [\d,]+ MiB more"):
        require_space(tmp_path, minimum_bytes=2**62)
    require_space(tmp_path, minimum_bytes=1)


def test_a_folder_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    with pytest.raises(StackError, match=r"written by another version of loomlog.*Move it away"):
        open_home(tmp_path)
    assert not (tmp_path / "format").exists()
    (tmp_path / "format").write_text("1\n")
    with pytest.raises(StackError, match="written by another version"):
        open_home(tmp_path)
    (tmp_path / "format").write_text(f"{FORMAT}\n")
    assert open_home(tmp_path).kafka_data.exists()


def test_a_later_start_needs_less_room_than_the_first_one(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    assert home.needed_bytes == MINIMUM_FREE_BYTES
    home.kafka_data.mkdir()
    assert home.needed_bytes == RESTART_FREE_BYTES


def test_a_full_disk_is_told_from_other_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    number = errno.ENOSPC
    with pytest.raises(DiskFull, match=r"stack\.json cannot be written: .*No space left.*Free some space"):
        write_atomically(tmp_path / "stack.json", "new")
    number = errno.EROFS
    with pytest.raises(OSError, match="Read-only"):
        write_atomically(tmp_path / "stack.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    write_atomically(path, "old", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("stack.json", "old")]
