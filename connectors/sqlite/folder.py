"""A folder of this process for its files of databases; those of processes that have ended are removed.

The files are caches in plaintext, so no other process uses them, and none is left behind for long. A process holds a
lock on a file beside its folder, which the system releases however it ends; a lock that can be taken belongs to none.

Before: services/families/database/files.py. After: the operating system.
"""

import fcntl
import os
import secrets
import shutil
from pathlib import Path

from loomlog.connectors.storage.private_files import FILE_MODE, FOLDER_MODE, make_folders

SUFFIX = ".lock"
STARTING = f"starting{SUFFIX}"


class ClaimedFolder:
    """A folder that is removed with the process. Raises OSError when there can be none."""

    def __init__(self, root: Path) -> None:
        make_folders(root)
        starting = os.open(root / STARTING, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)  # no other process looks at a folder whose lock is not taken yet
            _remove_abandoned(root)
            self.path = root / f"{os.getpid()}-{secrets.token_hex(4)}"
            self._lock_path = self.path.with_name(f"{self.path.name}{SUFFIX}")
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path.mkdir(mode=FOLDER_MODE)
        finally:
            os.close(starting)

    def close(self) -> None:
        """Remove the folder and its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)


def _remove_abandoned(root: Path) -> None:
    for lock_path in root.glob(f"*{SUFFIX}"):
        if lock_path.name == STARTING:
            continue
        lock = os.open(lock_path, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its process lives
        else:
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)
        finally:
            os.close(lock)
