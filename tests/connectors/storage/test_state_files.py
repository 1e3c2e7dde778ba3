from pathlib import Path

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.state_files import StateFiles

ONE, TWO = "snap_1780000000000_0123abcd", "snap_1780000000001_0123abcd"


async def kept(files: StateFiles, file_id: str, content: bytes = b"state") -> None:
    async with files.open_for_write(file_id) as file:
        file.write(content)
        await files.commit(file_id, file, {"id": file_id, "byte_size": len(content)})


async def test_a_file_is_there_once_its_manifest_is(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "states")
    assert await files.list_manifests() == []
    async with files.open_for_write(ONE) as file:
        file.write(b"state")
        assert await files.list_manifests() == []
        assert await files.read_manifest(ONE) is None
        await files.commit(ONE, file, {"id": ONE})
    assert await files.read_manifest(ONE) == {"id": ONE}
    with await files.open(ONE) as found:
        assert found.read() == b"state"


async def test_what_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    with pytest.raises(TypeError):
        await kept(files, ONE, "no bytes")  # type: ignore[arg-type]  # so writing fails
    assert list(tmp_path.iterdir()) == []


async def test_the_newest_comes_first_and_another_process_sees_the_same(tmp_path: Path) -> None:
    await kept(StateFiles(tmp_path), ONE)
    await kept(StateFiles(tmp_path), TWO)
    assert [manifest["id"] for manifest in await StateFiles(tmp_path).list_manifests()] == [TWO, ONE]


async def test_a_removed_one_is_gone_with_its_file(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    await kept(files, ONE)
    assert await files.remove(ONE)
    assert not await files.remove(ONE)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Permanent) as caught:
        await files.open(ONE)
    assert caught.value.kind == "not_found"


@pytest.mark.parametrize("file_id", ["../x", "snap_1_0123abcd/..", "snap_1_XYZ", "", "snap_1_0123abcd\n"])
async def test_no_other_name_reaches_the_disk(file_id: str, tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    assert await files.read_manifest(file_id) is None
    assert not await files.remove(file_id)
    with pytest.raises(Permanent, match="expected snap_"):
        await files.open(file_id)


async def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    await kept(files, ONE)
    with pytest.raises(Permanent, match="create"):
        await kept(files, ONE, b"other")
    with await files.open(ONE) as found:
        assert found.read() == b"state"


async def test_what_the_disk_refuses_is_told_as_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    files = StateFiles(tmp_path / "file")
    with pytest.raises((Permanent, Transient), match="create"):
        await kept(files, ONE)
    (tmp_path / f"{TWO}.json").write_text("{")
    with pytest.raises(Permanent, match="is not JSON"):
        await StateFiles(tmp_path).list_manifests()
