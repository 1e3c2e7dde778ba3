import os
from pathlib import Path

import pytest

from loomlog.services.cli.stack import account
from loomlog.services.cli.stack.account import PostgresAccount, change_owner, choose_account, find_inaccessible_folder
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.oneshot import ProcessResult

NOBODY = 65534


def opened(folder: Path) -> Path:
    """`folder` with everything above it made passable as far as it is ours."""
    folder.mkdir(parents=True)
    for part in (folder, *folder.parents):
        if part.stat().st_uid == os.geteuid() and "pytest" in str(part):
            part.chmod(0o755)
    return folder


def test_an_open_path_has_no_barrier(tmp_path: Path) -> None:
    assert find_inaccessible_folder(opened(tmp_path / "a" / "b"), NOBODY, NOBODY) is None


def test_the_outermost_closed_folder_is_the_barrier(tmp_path: Path) -> None:
    inner = opened(tmp_path / "a" / "b" / "c")
    (tmp_path / "a").chmod(0o700)
    (tmp_path / "a" / "b").chmod(0o700)
    assert find_inaccessible_folder(inner, NOBODY, NOBODY) == tmp_path / "a"


def test_the_owner_and_the_group_have_their_own_bits(tmp_path: Path) -> None:
    folder = opened(tmp_path / "a")
    owner = folder.stat()
    folder.chmod(0o070)
    assert find_inaccessible_folder(folder, owner.st_uid, NOBODY) == folder
    assert find_inaccessible_folder(folder, NOBODY, owner.st_gid) is None


def as_root(monkeypatch: pytest.MonkeyPatch, answer: ProcessResult) -> list[tuple[str, ...]]:
    tried: list[tuple[str, ...]] = []

    async def run(argv: object, *, launch_options: tuple[str, ...], timeout_s: float) -> ProcessResult:
        tried.append(launch_options)
        return answer

    monkeypatch.setattr(account, "run_program", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tried


async def test_an_ordinary_user_runs_it_as_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert await choose_account(required_paths=(tmp_path,)) == PostgresAccount(
        launch_options=(), uid=1234, gid=os.getegid()
    )


async def test_root_becomes_an_account_that_can_reach_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = as_root(monkeypatch, ProcessResult(exit_code=0, output=""))
    monkeypatch.setattr(account, "find_inaccessible_folder", lambda *_: None)
    chosen = await choose_account(required_paths=(tmp_path,))
    assert chosen.launch_options == ("--account", f"{chosen.uid}:{chosen.gid}")
    assert chosen.uid != 0
    assert tried == []


async def test_root_behind_a_barrier_looks_like_the_account_and_stays_the_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = as_root(monkeypatch, ProcessResult(exit_code=0, output=""))
    monkeypatch.setattr(account, "find_inaccessible_folder", lambda *_: tmp_path)
    chosen = await choose_account(required_paths=(tmp_path,))
    assert (chosen.launch_options[0], chosen.uid) == ("--namespace", 0)
    assert tried == [chosen.launch_options]


async def test_root_with_no_way_out_is_told_what_stands_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_root(monkeypatch, ProcessResult(exit_code=127, output="unshare: not permitted"))
    monkeypatch.setattr(account, "find_inaccessible_folder", lambda *_: tmp_path)
    with pytest.raises(StackError, match=rf"may not enter {tmp_path} .*unshare: not permitted.*LOOMLOG_POSTGRES"):
        await choose_account(required_paths=(tmp_path,))


async def test_a_system_without_any_such_account_is_told_which_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_root(monkeypatch, ProcessResult(exit_code=0, output=""))
    monkeypatch.setattr(account, "ACCOUNTS", ("no-such-account",))
    with pytest.raises(StackError, match="none of the accounts no-such-account"):
        await choose_account(required_paths=(tmp_path,))


def test_a_folder_that_has_its_owner_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = tmp_path.stat().st_ctime_ns
    change_owner(tmp_path, PostgresAccount(launch_options=(), uid=tmp_path.stat().st_uid, gid=tmp_path.stat().st_gid))
    assert tmp_path.stat().st_ctime_ns == before
