"""As whom Postgres runs. It refuses root, and in a container one often is root.

An ordinary user: as that user. Root: as an unprivileged account of this machine (`postgres`, else `nobody`), if that
account can reach the state folder and the programs. If it cannot, as when all of it lies in root's own folder (mode
0700), in a user namespace in which root looks like that account, so that nothing has to be opened up for others. If
the kernel forbids that too: a sentence.

Not chosen: making an account and changing the modes of every folder up to / (what the wheel's own server class does). A
development tool has no business in /etc/passwd or with the mode of somebody's home.

Before: postgres.  After: launch, which does it.
"""

import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.services.cli.stack.oneshot import run
from loomlog.services.cli.stack.problems import StackProblem

ACCOUNTS = ("postgres", "nobody")
ROOT = 0
NAMESPACE_TEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """As whom to run: `option` for the launcher (empty: as we are), and who owns the files on disk then."""

    option: tuple[str, ...]
    uid: int
    gid: int


async def choose_account(*, to_enter: Sequence[Path]) -> Account:
    """The account for Postgres, which has to reach every folder of `to_enter`. Raises StackProblem."""
    if os.geteuid() != ROOT:
        return Account(option=(), uid=os.geteuid(), gid=os.getegid())
    entry = _unprivileged()
    barred = next((folder for path in to_enter if (folder := barrier(path, entry.pw_uid, entry.pw_gid))), None)
    if barred is None:
        return Account(option=("--account", f"{entry.pw_uid}:{entry.pw_gid}"), uid=entry.pw_uid, gid=entry.pw_gid)
    option = ("--namespace", f"{entry.pw_uid}:{entry.pw_gid}")
    test = await run(("true",), launch=option, timeout_s=NAMESPACE_TEST_TIMEOUT_S)
    if test.code == 0:
        return Account(option=option, uid=ROOT, gid=os.getegid())
    raise StackProblem(
        f"Postgres does not run as root. It would run as the account {entry.pw_name}, but that may not enter {barred} "
        f"(mode {stat.S_IMODE(barred.stat().st_mode):o}), and this system allows no user namespace "
        f"({test.output.strip()}). Run loomlog as an ordinary user, or move it to a folder others may enter, or start "
        "a Postgres yourself and set LOOMLOG_POSTGRES."
    )


def barrier(path: Path, uid: int, gid: int) -> Path | None:
    """The outermost folder on the way to `path` (itself included) that the account may not enter; None when none."""
    for folder in (*reversed(path.parents), path):
        found = folder.stat()
        bit = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if not found.st_mode & bit:
            return folder
    return None


def own(folder: Path, account: Account) -> None:
    """Give `folder` and all in it to the account, when root runs it and somebody else owns it. Blocking."""
    if os.geteuid() != ROOT or folder.stat().st_uid == account.uid:
        return
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            os.chown(os.path.join(place, name), account.uid, account.gid, follow_symlinks=False)
        os.chown(place, account.uid, account.gid)  # the top last: until then an interrupted change is seen and redone


def _unprivileged() -> pwd.struct_passwd:
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackProblem(
        f"Postgres does not run as root, and this system has none of the accounts {', '.join(ACCOUNTS)} to run it as. "
        "Run loomlog as an ordinary user, or start a Postgres yourself and set LOOMLOG_POSTGRES."
    )
