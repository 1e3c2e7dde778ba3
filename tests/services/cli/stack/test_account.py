import os
from pathlib import Path

import pytest

from loomlog.services.cli.stack import account
from loomlog.services.cli.stack.account import Account, barrier, choose_account, own
from loomlog.services.cli.stack.oneshot import Ended
from loomlog.services.cli.stack.problems import StackProblem

NOBODY = 65534


def opened(folder: Path) -> Path:
    """`folder` with everything above it made passable as far as it is ours."""
    folder.mkdir(parents=True)
    for part in (folder, *folder.parents):
        if part.stat().st_uid == os.geteuid() and "pytest" in str(part):
            part.chmod(0o755)
    return folder


def test_an_open_path_has_no_barrier(tmp_path: Path) -> None:
    assert barrier(opened(tmp_path / "a" / "b"), NOBODY, NOBODY) is None


def test_the_outermost_closed_folder_is_the_barrier(tmp_path: Path) -> None:
    inner = opened(tmp_path / "a" / "b" / "c")
    (tmp_path / "a").chmod(0o700)
    (tmp_path / "a" / "b").chmod(0o700)
    assert barrier(inner, NOBODY, NOBODY) == tmp_path / "a"


def test_the_owner_and_the_group_have_their_own_bits(tmp_path: Path) -> None:
    folder = opened(tmp_path / "a")
    owner = folder.stat()
    folder.chmod(0o070)
    assert barrier(folder, owner.st_uid, NOBODY) == folder
    assert barrier(folder, NOBODY, owner.st_gid) is None


def as_root(monkeypatch: pytest.MonkeyPatch, answer: Ended) -> list[tuple[str, ...]]:
    tried: list[tuple[str, ...]] = []

    async def run(argv: object, *, launch: tuple[str, ...], timeout_s: float) -> Ended:
        tried.append(launch)
        return answer

    monkeypatch.setattr(account, "run", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tried


async def test_an_ordinary_user_runs_it_as_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert await choose_account(to_enter=(tmp_path,)) == Account(option=(), uid=1234, gid=os.getegid())


async def test_root_becomes_an_account_that_can_reach_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = as_root(monkeypatch, Ended(code=0, output=""))
    monkeypatch.setattr(account, "barrier", lambda *_: None)
    chosen = await choose_account(to_enter=(tmp_path,))
    assert chosen.option == ("--account", f"{chosen.uid}:{chosen.gid}")
    assert chosen.uid != 0
    assert tried == []


async def test_root_behind_a_barrier_looks_like_the_account_and_stays_the_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = as_root(monkeypatch, Ended(code=0, output=""))
    monkeypatch.setattr(account, "barrier", lambda *_: tmp_path)
    chosen = await choose_account(to_enter=(tmp_path,))
    assert (chosen.option[0], chosen.uid) == ("--namespace", 0)
    assert tried == [chosen.option]


async def test_root_with_no_way_out_is_told_what_stands_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_root(monkeypatch, Ended(code=127, output="unshare: not permitted"))
    monkeypatch.setattr(account, "barrier", lambda *_: tmp_path)
    with pytest.raises(StackProblem, match=rf"may not enter {tmp_path} .*unshare: not permitted.*LOOMLOG_POSTGRES"):
        await choose_account(to_enter=(tmp_path,))


async def test_a_system_without_any_such_account_is_told_which_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_root(monkeypatch, Ended(code=0, output=""))
    monkeypatch.setattr(account, "ACCOUNTS", ("no-such-account",))
    with pytest.raises(StackProblem, match="none of the accounts no-such-account"):
        await choose_account(to_enter=(tmp_path,))


def test_a_folder_that_has_its_owner_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = tmp_path.stat().st_ctime_ns
    own(tmp_path, Account(option=(), uid=tmp_path.stat().st_uid, gid=tmp_path.stat().st_gid))
    assert tmp_path.stat().st_ctime_ns == before
