import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.private_files import create_file, make_folders
from loomlog.connectors.storage.state_files import StateFiles
from tests.connectors.storage.test_state_files import kept


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_its_owners_and_never_written_over(tmp_path: Path) -> None:
    with create_file(tmp_path / "new") as file:
        file.write(b"words")
    assert mode_of(tmp_path / "new") == 0o600
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b"words"


def test_only_folders_that_are_made_are_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert make_folders(tmp_path / "a" / "b") == [tmp_path / "a" / "b", tmp_path / "a"]
    assert [mode_of(path) for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")] == [0o755, 0o700, 0o700]
    assert make_folders(tmp_path / "a" / "b") == []


async def test_payloads_and_states_are_their_owners(tmp_path: Path) -> None:
    await FileBlobs(tmp_path / "blobs").put(b"words")
    await kept(StateFiles(tmp_path / "blobs" / "states"), "snap_1_0123abcd")
    found = list((tmp_path / "blobs").rglob("*"))
    assert {mode_of(path) for path in found if path.is_file()} == {0o600}
    assert {mode_of(path) for path in found if path.is_dir()} == {0o700}
    assert len([path for path in found if path.is_file()]) == 3
