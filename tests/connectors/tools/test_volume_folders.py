"""Folders of volumes that are made at run time: nothing outside the root is made or removed, whatever is in the way."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.protocols import VolumeBinding
from loomlog.connectors.tools import volume_folders
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import CancellationToken, WorkCancelled
from loomlog.connectors.tools.volume_folders import FolderProblem, VolumeFolders
from loomlog.connectors.tools.volumes import Volume

NOTES = ("acme", "notes")


@pytest.fixture
def folders(tmp_path: Path) -> VolumeFolders:
    (tmp_path / "outside" / "notes").mkdir(parents=True)
    (tmp_path / "outside" / "notes" / "secret").write_text("keep")
    return VolumeFolders(str(tmp_path / "pool"))


def remove(folders: VolumeFolders, parts: tuple[str, ...] = NOTES, recorded: str = "") -> bool:
    return folders.remove(parts, recorded or folders.path(parts), CancellationToken())


def is_untouched(tmp_path: Path) -> bool:
    return (tmp_path / "outside" / "notes" / "secret").read_text() == "keep"


def test_a_folder_is_made_again_and_removed_with_its_empty_parents(folders: VolumeFolders, tmp_path: Path) -> None:
    folders.make(NOTES)
    (tmp_path / "pool" / "acme" / "notes" / "f").write_text("x")
    folders.make(NOTES)
    assert (tmp_path / "pool" / "acme" / "notes" / "f").exists()
    folders.make(("acme", "other"))
    assert remove(folders)
    assert os.listdir(tmp_path / "pool" / "acme") == ["other"]
    assert remove(folders, ("acme", "other"))
    assert os.listdir(tmp_path / "pool") == []
    assert not remove(folders)


def test_a_root_given_through_a_link_is_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "disk")
    folders = VolumeFolders(str(tmp_path / "alias"))
    folders.make(NOTES)
    assert (tmp_path / "disk" / "acme" / "notes").is_dir()
    assert remove(folders)


@pytest.mark.parametrize(
    "recorded", ["/", "/etc", "{root}", "{root}/acme", "{root}/acme/../acme/notes", "{root}/acme/n"]
)
def test_only_the_derived_path_is_removed(folders: VolumeFolders, recorded: str) -> None:
    folders.make(NOTES)
    with pytest.raises(FolderProblem, match="nothing was removed"):
        remove(folders, recorded=recorded.format(root=folders.root))
    assert folders.exists(NOTES)


@pytest.mark.parametrize("parts", [("..", "outside"), ("acme", ".."), ("a/b",), ("",), ("acme", "."), ("a\0",)])
def test_a_name_that_is_none_is_refused(folders: VolumeFolders, parts: tuple[str, ...]) -> None:
    for call in (folders.make, folders.path, folders.exists):
        with pytest.raises(FolderProblem, match="is not the name of a folder"):
            call(parts)


@pytest.mark.parametrize("level", ["acme", "acme/notes"])
def test_a_symlink_below_the_root_is_never_followed(folders: VolumeFolders, tmp_path: Path, level: str) -> None:
    (tmp_path / "pool" / level).parent.mkdir(parents=True)
    target = tmp_path / "outside" / ("notes" if level == "acme/notes" else "")
    (tmp_path / "pool" / level).symlink_to(target)
    for call in (lambda: folders.make(NOTES), lambda: remove(folders)):
        with pytest.raises(FolderProblem, match="symlink"):
            call()
    assert is_untouched(tmp_path)


def test_links_in_a_volume_are_removed_and_not_what_they_lead_to(folders: VolumeFolders, tmp_path: Path) -> None:
    folders.make(NOTES)
    volume = tmp_path / "pool" / "acme" / "notes"
    (volume / "folder").symlink_to(tmp_path / "outside")
    (volume / "file").symlink_to(tmp_path / "outside" / "notes" / "secret")
    (volume / "deep").mkdir()
    (volume / "deep" / "again").symlink_to(tmp_path / "outside" / "notes")
    os.mkfifo(volume / "deep" / "pipe")
    assert remove(folders)
    assert is_untouched(tmp_path)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["listdir", "unlink", "rmdir", "stat"])
@pytest.mark.parametrize("what", ["acme", "acme/notes", "acme/notes/inner"])
def test_a_link_that_is_swapped_in_during_a_removal_leads_nowhere(
    folders: VolumeFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, call: str, when: str
) -> None:
    (tmp_path / "outside" / "notes" / "inner").mkdir()
    (tmp_path / "outside" / "notes" / "inner" / "secret").write_text("keep")
    folders.make(("acme", "notes", "inner"))
    (tmp_path / "pool" / "acme" / "notes" / "inner" / "secret").write_text("x")
    swapped = tmp_path / "pool" / what
    real, is_done = getattr(os, call), False

    def swap() -> None:
        nonlocal is_done
        if not is_done and not os.path.islink(swapped):
            is_done = True
            with suppress(FileNotFoundError):  # it is removed already
                swapped.rename(tmp_path / "moved")
            swapped.symlink_to(tmp_path / "outside" / what.removeprefix("acme").strip("/"))

    def attack(*arguments: Any, **more: Any) -> Any:
        if when == "before":
            swap()
        result = real(*arguments, **more)
        if when == "after":
            swap()
        return result

    with monkeypatch.context() as patch, suppress(FolderProblem):  # refused is as good as removed where it was moved to
        patch.setattr(os, call, attack)
        remove(folders)
    assert is_done
    assert is_untouched(tmp_path)
    assert (tmp_path / "outside" / "notes" / "inner" / "secret").read_text() == "keep"


def test_a_tree_of_any_depth_is_removed(folders: VolumeFolders) -> None:
    folders.make(NOTES)
    here = os.open(folders.path(NOTES), os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert remove(folders)
    assert not folders.exists(NOTES)


def test_a_removal_stops_with_its_caller_and_is_continued_by_the_next(folders: VolumeFolders) -> None:
    folders.make((*NOTES, "inner"))
    stop = CancellationToken()
    stop.cancel()
    with pytest.raises(WorkCancelled):
        folders.remove(NOTES, folders.path(NOTES), stop)
    assert folders.exists(NOTES)
    assert remove(folders)


def test_a_removal_that_takes_too_long_says_that_it_can_be_continued(
    folders: VolumeFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.make((*NOTES, "inner"))
    monkeypatch.setattr(volume_folders, "REMOVAL_S", 0.0)
    with pytest.raises(FolderProblem, match="purge it again"):
        remove(folders)
    monkeypatch.undo()
    assert remove(folders)


def test_a_tool_refuses_a_volume_whose_folder_was_replaced_by_a_link(folders: VolumeFolders, tmp_path: Path) -> None:
    folders.make(NOTES)
    binding = VolumeBinding(name="notes", path=folders.path(NOTES), mode="rw", root=folders.root)
    assert Volume.from_binding(binding).path == folders.path(NOTES)
    (tmp_path / "pool" / "acme").rename(tmp_path / "pool" / "moved")
    (tmp_path / "pool" / "acme").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolCallRefused, match="replaced by a symlink"):
        Volume.from_binding(binding)
