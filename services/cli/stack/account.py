"""The account that runs Postgres, which refuses root; in a container the user often is root.

An ordinary user: as that user. Root: as an unprivileged account of this machine (`postgres`, else `nobody`), if that
account can reach the state folder and the programs. If it cannot, for example because all of it is in root's own folder
(mode 0700): in a user namespace in which root looks like that account, so that no folder has to be opened to others. If
the kernel forbids that too: an error.

Not chosen: creating an account and changing the modes of every folder up to / (what the wheel's own server class does).
A development tool must not change /etc/passwd or the mode of a home directory.

Before: postgres.  After: launch, which does it.
"""

import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.oneshot import run_program

ACCOUNTS = ("postgres", "nobody")
ROOT = 0
NAMESPACE_TEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAccount:
    """The account to run as: `option` for the launcher (empty: the current user), and the owner of the files."""

    launch_options: tuple[str, ...]
    uid: int
    gid: int


async def choose_account(*, required_paths: Sequence[Path]) -> PostgresAccount:
    """Choose the account for Postgres, which has to reach every folder of `required_paths`. Raises StackError."""
    if os.geteuid() != ROOT:
        return PostgresAccount(launch_options=(), uid=os.geteuid(), gid=os.getegid())
    entry = _find_unprivileged_account()
    barred = next(
        (folder for path in required_paths if (folder := find_inaccessible_folder(path, entry.pw_uid, entry.pw_gid))),
        None,
    )
    if barred is None:
        return PostgresAccount(
            launch_options=("--account", f"{entry.pw_uid}:{entry.pw_gid}"), uid=entry.pw_uid, gid=entry.pw_gid
        )
    option = ("--namespace", f"{entry.pw_uid}:{entry.pw_gid}")
    test = await run_program(("true",), launch_options=option, timeout_s=NAMESPACE_TEST_TIMEOUT_S)
    if test.exit_code == 0:
        return PostgresAccount(launch_options=option, uid=ROOT, gid=os.getegid())
    raise StackError(
        f"Postgres does not run as root. It would run as the account {entry.pw_name}, but that may not enter {barred} "
        f"(mode {stat.S_IMODE(barred.stat().st_mode):o}), and this system allows no user namespace "
        f"({test.output.strip()}). Run loomlog as an ordinary user, or move it to a folder others may enter, or start "
        "a Postgres yourself and set LOOMLOG_POSTGRES."
    )


def find_inaccessible_folder(path: Path, uid: int, gid: int) -> Path | None:
    """Return the outermost folder on the way to `path` (itself included) that the account may not enter; None when
    none.
    """
    for folder in (*reversed(path.parents), path):
        status = folder.stat()
        bit = stat.S_IXUSR if status.st_uid == uid else stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
        if not status.st_mode & bit:
            return folder
    return None


def change_owner(folder: Path, account: PostgresAccount) -> None:
    """Give `folder` and its content to the account, when root runs it and the owner is another. Blocking."""
    if os.geteuid() != ROOT or folder.stat().st_uid == account.uid:
        return
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            os.chown(os.path.join(place, name), account.uid, account.gid, follow_symlinks=False)
        # the top folder last: until then an interrupted change is detected and repeated
        os.chown(place, account.uid, account.gid)


def _find_unprivileged_account() -> pwd.struct_passwd:
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackError(
        f"Postgres does not run as root, and this system has none of the accounts {', '.join(ACCOUNTS)} to run it as. "
        "Run loomlog as an ordinary user, or start a Postgres yourself and set LOOMLOG_POSTGRES."
    )
