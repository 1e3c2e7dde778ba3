import os
import stat
from pathlib import Path

import httpx
import pytest

from loomlog.services.cli.errors import CliError, Unreachable, UsageError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.log.export_file import check_target, partial_export


def test_a_file_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    check_target(path, force=False)
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="--force replaces it"):
        check_target(path, force=False)
    check_target(path, force=True)


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "device").symlink_to("/dev/null")
    for path in (Path("/dev/full"), *(tmp_path / name for name in ("folder", "pipe", "nowhere", "device"))):
        with pytest.raises(UsageError, match="no regular file"):
            check_target(path, force=True)


async def test_what_arrives_whole_gets_its_name_and_is_its_owners(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = tmp_path / "x"
        (tmp_path / "x.part").write_bytes(b"left by one that was killed")
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=b"all that was said"))
        with partial_export(path) as partial:
            async with ApiClient("http://api.test", transport=transport) as api:
                await api.download("/v1/x", partial)
            assert not path.exists()
    finally:
        os.umask(before)
    assert path.read_bytes() == b"all that was said"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


async def test_what_broke_off_is_not_an_api_that_is_away(tmp_path: Path) -> None:
    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("peer closed connection")

    async with ApiClient("http://api.test", transport=httpx.MockTransport(cut)) as api:
        with pytest.raises(CliError, match="/v1/x broke off") as failure:
            await api.download("/v1/x", tmp_path / "x")
    assert not isinstance(failure.value, Unreachable)


def test_what_does_not_arrive_leaves_nothing(tmp_path: Path) -> None:
    def broken_off() -> None:
        with partial_export(tmp_path / "x") as partial:
            partial.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_off()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CliError, match="cannot be written"), partial_export(tmp_path / "file" / "x") as partial:
        partial.write_bytes(b"")
