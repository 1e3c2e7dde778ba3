import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.blobs import TEMPORARY_PREFIX, FileBlobs, MemoryBlobs, blob_ref
from loomlog.schemas.generated.values import BlobRef

DATA = b"a long text " * 1_000


@pytest.fixture(params=["files", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return FileBlobs(tmp_path / "blobs") if request.param == "files" else MemoryBlobs()


async def test_what_is_put_comes_back(blobs: Blobs) -> None:
    ref = await blobs.put(DATA)
    assert ref == BlobRef(sha256=hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA), media_type="text/plain")
    assert await blobs.get(ref) == DATA


async def test_the_same_bytes_again_give_the_same_reference(blobs: Blobs) -> None:
    assert await blobs.put(DATA) == await blobs.put(DATA)


async def test_the_media_type_is_in_the_reference(blobs: Blobs) -> None:
    assert (await blobs.put(b"x", "image/png")).media_type == "image/png"


async def test_an_absent_blob_is_permanently_not_found(blobs: Blobs) -> None:
    with pytest.raises(Permanent) as error:
        await blobs.get(blob_ref(b"never put", "text/plain"))
    assert error.value.kind == "not_found"


async def test_what_is_deleted_is_not_found_and_may_be_deleted_again(blobs: Blobs) -> None:
    ref = await blobs.put(b"hers", "text/plain")
    other = await blobs.put(b"his", "text/plain")
    await blobs.delete(ref)
    await blobs.delete(ref)
    with pytest.raises(Permanent) as raised:
        await blobs.get(ref)
    assert raised.value.kind == "not_found"
    assert await blobs.get(other) == b"his"


async def test_many_may_put_the_same_at_once(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    refs = await asyncio.gather(*(blobs.put(DATA) for _ in range(8)))
    assert len(set(refs)) == 1
    assert await blobs.get(refs[0]) == DATA
    assert not list(tmp_path.rglob(f"{TEMPORARY_PREFIX}*"))


async def test_an_altered_blob_is_refused_and_never_given(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    ref = await blobs.put(DATA)
    blobs.blob_path(ref.sha256).write_bytes(DATA.replace(b"long", b"lung", 1))
    with pytest.raises(Permanent, match="altered") as error:
        await blobs.get(ref)
    assert error.value.kind == "invalid"


async def test_a_blob_cut_short_by_a_crash_is_written_again(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    ref = await blobs.put(DATA)
    blobs.blob_path(ref.sha256).write_bytes(DATA[:10])
    await blobs.put(DATA)
    assert await blobs.get(ref) == DATA


async def test_blobs_lie_two_folders_deep_under_their_hash(tmp_path: Path) -> None:
    sha256 = (await FileBlobs(tmp_path).put(b"x")).sha256
    assert (tmp_path / sha256[:2] / sha256[2:4] / sha256).read_bytes() == b"x"


async def test_the_bytes_are_flushed_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (order.append("flush"), real_fsync(file))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append("name"), real_replace(self, to))[1])
    await FileBlobs(tmp_path).put(DATA)
    named = order.index("name")
    assert order[named - 1] == "flush"
    assert "flush" in order[named + 1 :], "its folder is flushed after it has its name"


async def test_a_name_that_is_no_hash_never_reaches_the_disk(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="64 lower-case hex digits"):
        await FileBlobs(tmp_path).get(BlobRef(sha256="../../etc/passwd", size_bytes=1))


async def test_a_folder_that_is_a_file_is_a_permanent_failure(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("not a folder")
    with pytest.raises((Permanent, Transient)):
        await FileBlobs(tmp_path / "blobs").put(DATA)
