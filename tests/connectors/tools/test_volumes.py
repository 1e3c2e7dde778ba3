import contextlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.tools import volumes
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import CancellationToken, WorkCancelled
from loomlog.connectors.tools.volumes import MAX_LINKS, Volume, choose_volume
from tests.connectors.tools.given import STOP, binding, volume

SECRET = b"outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def write(volume: Volume, path: str, content: bytes) -> None:
    with volume.lock_file(volume.locate(path)) as change:
        change.replace(content, STOP)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(ToolCallRefused) as caught:
        call(*arguments)
    return str(caught.value)


# --- which volume ----------------------------------------------------------------------------------------------------


def test_the_named_volume_wins_over_the_default(tmp_path: Path) -> None:
    one, two = binding(tmp_path, name="one", is_default=True), binding(tmp_path, name="two")
    assert choose_volume("two", (one, two)) is two
    assert choose_volume(None, (two, one)) is one


def test_the_only_volume_needs_no_name(tmp_path: Path) -> None:
    only = binding(tmp_path)
    assert choose_volume(None, (only,)) is only


def test_an_unknown_volume_is_refused_with_the_granted_names(tmp_path: Path) -> None:
    grants = (binding(tmp_path, name="one"), binding(tmp_path, name="two", mode="ro"))
    assert "one (rw), two (ro)" in refusal(choose_volume, "three", grants)
    assert "none is the default" in refusal(choose_volume, None, grants)


def test_without_a_volume_nothing_is_reached() -> None:
    assert "No volume is granted" in refusal(choose_volume, None, ())


def test_a_volume_whose_folder_is_gone_is_refused_without_its_path(tmp_path: Path) -> None:
    text = refusal(Volume.from_binding, binding(tmp_path / "gone"))
    assert "no such file" in text
    assert str(tmp_path) not in text
    assert "relative" in refusal(Volume.from_binding, binding(Path("here")))


# --- where a path leads ----------------------------------------------------------------------------------------------


def test_dots_and_absolute_paths_and_links_are_fine_while_they_end_inside(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "f").write_bytes(b"x")
    (root / "link").symlink_to(root / "a")
    (root.parent / "way").symlink_to(root)
    for path in ("a/f", "./a//f", "a/../a/f", str(root / "a" / "f"), "link/f", f"../{root.name}/a/f", "../way/a/f"):
        assert volume(root).locate(path) == ("a", "f"), path


@pytest.mark.parametrize(
    "path", ["..", "../outside/secret", "a/../../outside/secret", "/", "/etc/passwd", "../rootless"]
)
def test_a_path_that_leads_outside_is_refused(root: Path, path: str) -> None:
    (root.parent / "rootless").mkdir()
    assert "leads outside" in refusal(volume(root).locate, path)


def test_a_link_that_leads_outside_is_refused(root: Path) -> None:
    (root / "relative").symlink_to("../outside")
    (root / "absolute").symlink_to(root.parent / "outside" / "secret")
    (root / "chain").symlink_to("relative")
    (root / "new").symlink_to("../outside/new")
    for path in ("relative/secret", "absolute", "chain/secret", "new"):
        assert "leads outside" in refusal(volume(root).locate, path), path


def test_a_tilde_is_a_plain_character(root: Path) -> None:
    assert volume(root).locate("~/f") == ("~", "f")


@pytest.mark.parametrize(
    ("path", "problem"), [("a\0b", "NUL"), ("", "empty"), ("ä" * 2049, "4096"), ("\ud800", "surrogate")]
)
def test_a_path_that_is_none_is_refused(root: Path, path: str, problem: str) -> None:
    assert problem in refusal(volume(root).locate, path)


def test_a_circle_of_links_is_refused(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert "circle" in refusal(volume(root).locate, "a")


def test_a_chain_of_links_is_followed_up_to_the_bound(root: Path) -> None:
    (root / "0").write_bytes(b"x")
    for step in range(MAX_LINKS + 1100):
        (root / str(step + 1)).symlink_to(str(step))
    assert volume(root).locate(str(MAX_LINKS)) == ("0",)
    assert f"more than {MAX_LINKS}" in refusal(volume(root).locate, str(MAX_LINKS + 1))
    assert f"more than {MAX_LINKS}" in refusal(volume(root).locate, str(MAX_LINKS + 1100))


def test_a_root_given_through_a_link_works_by_both_names(root: Path) -> None:
    (root / "f").write_bytes(b"x")
    alias = root.parent / "alias"
    alias.symlink_to(root)
    actual = volume(alias)
    assert actual.locate(str(alias / "f")) == actual.locate(str(root / "f")) == ("f",)


# --- opening ---------------------------------------------------------------------------------------------------------


def test_only_regular_files_are_read(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    assert "a special file" in refusal(volume(root).read, ("pipe",), 10)
    assert "is a folder" in refusal(volume(root).read, ("folder",), 10)
    assert "is the root folder" in refusal(volume(root).read, (), 10)
    assert '"gone" in volume "work": there is no such file' in refusal(volume(root).read, ("gone",), 10)


def test_reading_stops_at_the_limit_and_tells_the_size(root: Path) -> None:
    (root / "f").write_bytes(b"abcdef")
    assert volume(root).read(("f",), 4) == (b"abcd", 6)


SWAPS = ("file", "folder", "deep folder")


def swap(root: Path, what: str) -> str:
    """Replaces a part of a/b/f by a symlink to outside; the path that was located before."""
    target = {"file": root / "a" / "b" / "f", "folder": root / "a" / "b", "deep folder": root / "a"}[what]
    target.rename(root / "moved")
    target.symlink_to(root.parent / "outside" / "secret" if what == "file" else root.parent / "outside")
    return str(target)


def deep_file(root: Path) -> Volume:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_bytes(b"inside")
    (root.parent / "outside" / "f").write_bytes(SECRET)
    (root.parent / "outside" / "b").mkdir()
    (root.parent / "outside" / "b" / "f").write_bytes(SECRET)
    return volume(root)


@pytest.mark.parametrize("what", SWAPS)
def test_a_link_swapped_in_between_check_and_open_is_not_followed_by_a_read(root: Path, what: str) -> None:
    actual = deep_file(root)
    parts = actual.locate("a/b/f")
    swap(root, what)
    assert "swapped" in refusal(actual.read, parts, 10) or what == "file"


@pytest.mark.parametrize("what", SWAPS)
def test_a_link_swapped_in_between_check_and_open_is_not_followed_by_a_write(root: Path, what: str) -> None:
    actual = deep_file(root)
    parts = actual.locate("a/b/f")
    swap(root, what)
    with pytest.raises(ToolCallRefused), actual.lock_file(parts) as change:
        change.replace(b"changed", STOP)
    outside = root.parent / "outside"
    assert {path.read_bytes() for path in (outside / "f", outside / "b" / "f", outside / "secret")} == {SECRET}
    assert sorted(path.name for path in outside.iterdir()) == ["b", "f", "secret"]


def test_a_link_swapped_in_at_the_last_moment_is_refused_by_the_kernel(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = deep_file(root)
    real_stat = os.stat

    def stat_then_swap(path: Any, **options: Any) -> os.stat_result:
        result = real_stat(path, **options)
        if path == "f":
            swap(root, "file")
        return result

    monkeypatch.setattr(os, "stat", stat_then_swap)
    assert "swapped for a symlink" in refusal(actual.read, ("a", "b", "f"), 10)


def test_a_pipe_swapped_in_at_the_last_moment_does_not_hang_the_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = deep_file(root)
    real_stat = os.stat

    def stat_then_swap(path: Any, **options: Any) -> os.stat_result:
        result = real_stat(path, **options)
        if path == "f":
            (root / "a" / "b" / "f").unlink()
            os.mkfifo(root / "a" / "b" / "f")
        return result

    monkeypatch.setattr(os, "stat", stat_then_swap)
    assert "changed while it was being opened" in refusal(actual.read, ("a", "b", "f"), 10)


def test_a_folder_that_flickers_between_real_and_link_never_gives_the_outside(root: Path) -> None:
    actual = deep_file(root)
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            (root / "a").rename(root / "away")
            (root / "a").symlink_to("../outside")
            (root / "a").unlink()
            (root / "away").rename(root / "a")

    thread = threading.Thread(target=flicker)
    thread.start()
    seen = set()
    try:
        for _ in range(400):
            with contextlib.suppress(ToolCallRefused):
                seen.add(actual.read(actual.locate("a/b/f"), 10)[0])
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"inside"}


# --- changing --------------------------------------------------------------------------------------------------------


def test_a_new_file_is_written_and_nothing_else_is_left(root: Path) -> None:
    write(volume(root), "f", b"new")
    assert [(path.name, path.read_bytes()) for path in root.iterdir()] == [("f", b"new")]


def test_an_existing_file_keeps_its_permissions(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    (root / "f").chmod(0o750)
    write(volume(root), "f", b"new")
    assert (root / "f").stat().st_mode & 0o777 == 0o750


def test_writing_through_a_link_changes_its_target_and_keeps_the_link(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    (root / "link").symlink_to("f")
    write(volume(root), "link", b"new")
    assert (root / "link").is_symlink()
    assert (root / "f").read_bytes() == b"new"


def test_a_reader_of_the_old_file_keeps_the_old_content(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    with (root / "f").open("rb") as reader:
        write(volume(root), "f", b"new")
        assert reader.read() == b"old"


def test_a_folder_or_pipe_is_never_replaced(root: Path) -> None:
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    assert "is a folder" in refusal(write, volume(root), "folder", b"")
    assert "a special file" in refusal(write, volume(root), "pipe", b"")
    assert "root folder" in refusal(write, volume(root), ".", b"")


def test_a_read_only_volume_is_not_changed(root: Path) -> None:
    assert "read-only" in refusal(write, volume(root, mode="ro"), "f", b"")
    assert "read-only" in refusal(write, volume(root, mode="surprise"), "f", b"")
    assert list(root.iterdir()) == []


def test_a_cancelled_write_changes_nothing(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    stop = CancellationToken()
    stop.cancel()
    with pytest.raises(WorkCancelled), volume(root).lock_file(("f",)) as change:
        change.replace(b"new", stop)
    assert [(path.name, path.read_bytes()) for path in root.iterdir()] == [("f", b"old")]


def test_a_folder_that_stays_locked_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "LOCK_WAIT_S", 0.01)
    actual = volume(root)
    with actual.lock_file(("f",)):
        assert "was locked" in refusal(write, actual, "g", b"")
    write(actual, "g", b"")


# --- the property ----------------------------------------------------------------------------------------------------

# Everything happens far below a temporary folder and no target is absolute outside it, so that even code that lets a
# path escape (as it does when this test is tried on broken code) can only touch what the test owns.

NAMES = ("a", "b", "ü", "f.txt")
DEPTH = 30
"""More levels than the links and steps below can climb together."""
names = st.sampled_from(NAMES)
steps = st.sampled_from([*NAMES, "..", ".", "", "~"])
starts = st.sampled_from(["", "", "ROOT/", "OUTSIDE/", "TOP/", "../outside/", "../root/"])


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Folders, files and links to make, in order: kind, path, target."""
    made = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["folder", "file", "link"]))
        path = "/".join(draw(st.lists(names, min_size=1, max_size=3)))
        made.append((kind, path, draw(starts) + "/".join(draw(st.lists(steps, min_size=1, max_size=5)))))
    return made


def placed(text: str, top: Path) -> str:
    return text.replace("ROOT", f"{top}/root").replace("OUTSIDE", f"{top}/outside").replace("TOP", str(top)) or "."


def make(tree: list[tuple[str, str, str]], top: Path) -> None:
    """Makes what can be made without leaving the root through a link made before."""
    for kind, path, target in tree:
        place = top / "root" / path
        landed = Path(os.path.realpath(place.parent)) / place.name
        if kind != "link":
            landed = Path(os.path.realpath(place))
        if not landed.is_relative_to(top / "root"):
            continue
        with contextlib.suppress(OSError):
            if kind == "folder":
                landed.mkdir(parents=True)
            elif kind == "file":
                landed.write_bytes(b"inside")
            else:
                landed.symlink_to(placed(target, top))


def contents(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, links as such."""
    actual = {}
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            place = Path(path, name)
            actual[str(place)] = b"" if place.is_symlink() or place.is_dir() else place.read_bytes()
    return actual


@settings(max_examples=60, deadline=None)
@given(tree=trees(), start=starts, path=st.lists(steps, min_size=1, max_size=6))
def test_no_path_in_any_tree_reads_or_writes_outside(
    tree: list[tuple[str, str, str]], start: str, path: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        top = Path(os.path.realpath(base), *["x"] * DEPTH)
        root, outside = top / "root", top / "outside"
        for folder in (root, outside / "a"):
            folder.mkdir(parents=True)
        for name in NAMES[1:]:
            (outside / name).write_bytes(SECRET)
        make(tree, top)
        text = placed(start + "/".join(path), top)
        actual = volume(root)
        before = {path: data for path, data in contents(Path(base)).items() if not path.startswith(f"{root}/")}
        truth = Path(os.path.realpath(root / text))
        is_inside_file = truth.is_relative_to(root) and truth.is_file() and not truth.is_symlink()

        try:
            data: bytes | None = actual.read(actual.locate(text), 100)[0]
        except ToolCallRefused:
            data = None
        assert data == (b"inside" if is_inside_file else None)

        try:
            write(actual, text, b"written")
            assert truth.is_relative_to(root)
            assert truth.read_bytes() == b"written"
        except ToolCallRefused:
            assert not is_inside_file
        after = contents(Path(base))
        assert {path: data for path, data in after.items() if not path.startswith(f"{root}/")} == before
        assert not [path for path in after if path.endswith(".tmp")]
