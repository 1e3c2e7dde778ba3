"""Folders of the volumes that are made at run time: made and removed below one root, and nowhere else.

Whatever may have been done to the tree by those who write in it, a removal is proven to stay inside three times:

    derived     the path on record is the one that the names give; a record never chooses what is removed
    opened      each name is opened relative to the folder opened before, never through a symlink (O_NOFOLLOW), and the
                content is removed through these descriptors, so a name that is swapped later changes nothing
    resolved    the path with all symlinks followed is the resolved root and the names

Content is removed without recursion: folders within a folder are first moved up, so a tree may be of any depth. A
removal that is interrupted is continued by the next one.

All methods block.

Before: services/families/definition/volumes.py, in a thread. After: the operating system.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import CancellationToken, Deadline
from loomlog.connectors.tools.volumes import PathParts, resolve_symlinks

REMOVAL_S = 45.0
"""Seconds for one removal; a larger tree takes several, and a tool call has 60 s."""
TRIES = 3
"""Attempts to make a folder while another removal takes its empty parents away."""
RETRY_S = 0.01
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderProblem(Exception):
    """A folder cannot be made or removed; the text says which and why."""


class VolumeFolders:
    """The folders below a root. `parts`: names from the root to a folder; none is empty, `.`, `..` or has a `/`."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, parts: PathParts) -> str:
        """Return the path of a folder."""
        for name in parts:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise FolderProblem(f"{name!r} is not the name of a folder")
        return "/".join((self.root.rstrip("/"), *parts))

    def make(self, parts: PathParts) -> None:
        """Make a folder, and the root if there is none; durable on return. Raises FolderProblem."""
        self.path(parts)
        with self._problems(parts):
            os.makedirs(self.root, exist_ok=True)
            for attempt in range(TRIES):
                try:
                    with self._open(parts, make=True):
                        return
                except FileNotFoundError:
                    if attempt + 1 == TRIES:
                        raise
                    time.sleep(RETRY_S)

    def exists(self, parts: PathParts) -> bool:
        """Whether there is anything at the path of a folder."""
        return os.path.lexists(self.path(parts))

    def remove(self, parts: PathParts, recorded: str, cancellation: CancellationToken) -> bool:
        """Remove a folder with its content and its empty parents; returns whether there was one.

        `recorded`: the path on record. Raises FolderProblem, WorkCancelled.
        """
        path = self.path(parts)
        if not parts or recorded != path:
            raise FolderProblem(f"{recorded!r} is not the folder {path} of the volume: nothing was removed")
        with self._problems(parts):
            try:
                self._remove(parts, path, cancellation)
            except FileNotFoundError:
                return False
            for number in range(len(parts) - 1, 0, -1):
                with suppress(OSError), self._open(parts[: number - 1]) as above:
                    os.rmdir(parts[number - 1], dir_fd=above)
            return True

    def _remove(self, parts: PathParts, path: str, cancellation: CancellationToken) -> None:
        deadline = Deadline(REMOVAL_S)
        with self._open(parts[:-1]) as above:
            folder = os.open(parts[-1], _FLAGS, dir_fd=above)
            try:
                if resolve_symlinks((), path, parts[-1]) != (*self._resolved_root(), *parts):
                    raise FolderProblem(f"{path} leads to another folder: nothing was removed")
                while True:
                    _empty(folder, cancellation, deadline)
                    try:
                        os.rmdir(parts[-1], dir_fd=above)
                        return
                    except OSError as error:
                        if error.errno != errno.ENOTEMPTY:
                            raise
            finally:
                os.close(folder)

    def _resolved_root(self) -> PathParts:
        return resolve_symlinks((), os.path.abspath(self.root), "")

    @contextmanager
    def _open(self, parts: PathParts, *, make: bool = False) -> Iterator[int]:
        """Yield the descriptor of a folder, opened name by name without following a symlink below the root."""
        descriptor = os.open("/" + "/".join(self._resolved_root()), _FLAGS)
        try:
            for name in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                        os.fsync(descriptor)
                below = os.open(name, _FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _problems(self, parts: PathParts) -> Iterator[None]:
        try:
            yield
        except ToolCallRefused as refused:
            raise FolderProblem(str(refused)) from refused
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "a part of it is a symlink or no folder" if is_link else error.strerror or str(error)
            raise FolderProblem(f"{self.path(parts)}: {why}") from error


def _empty(folder: int, cancellation: CancellationToken, deadline: Deadline) -> None:
    """Remove what is in an open folder. Raises OSError, FolderProblem, WorkCancelled."""
    while names := os.listdir(folder):
        for name in names:
            cancellation.raise_if_cancelled()
            if deadline.is_expired:
                raise FolderProblem(f"not all of it was removed within {REMOVAL_S:g} s: purge it again to continue")
            with suppress(FileNotFoundError):  # others may remove too
                _remove_entry(folder, name)


def _remove_entry(folder: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    inner = os.open(name, _FLAGS, dir_fd=folder)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                os.rename(entry, f".{secrets.token_hex(12)}", src_dir_fd=inner, dst_dir_fd=folder)
            else:
                os.unlink(entry, dir_fd=inner)
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # something was written meanwhile, and the next look removes it
                raise
    finally:
        os.close(inner)
