"""A volume: a tool's only access to a file system; nothing outside its root can be reached through it.

Two steps, because between checking a path and opening it another process may swap a folder for a symlink:

    locate   the path as names below the root. Symlinks are resolved first, by our own code and with a limit, then
             containment is checked on the result: `..`, absolute paths and links are all allowed when they end inside.
    open     the located names, one after the other, each relative to the folder opened before and never through a
             symlink (O_NOFOLLOW). Anything swapped in since is refused by the kernel, not by a second check.

Not chosen: os.path.realpath, which recurses once per link of a chain and so can be made to overflow the stack;
openat2(RESOLVE_BENEATH), which Python does not offer and which refuses absolute links that stay inside.

Writing is a temporary file in the same folder as the target, fsynced, then renamed, then the folder fsynced: a reader
sees the old or the new content, and a write recorded in the log is on the disk. Changes in one folder exclude each
other (flock), so that two edits of one file in one turn cannot lose one. Known and accepted: a hard link to an outside
file counts as inside, and a process killed in the middle of a write leaves one `.loomlog-*.tmp` file.

Before: file_tool.py, file_walk.py, bash.py. After: the operating system.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from loomlog.connectors.protocols import VolumeBinding
from loomlog.connectors.tools.results import ToolCallRefused, encode_text, escape_name
from loomlog.connectors.tools.thread_pool import CancellationToken

MAX_PATH_BYTES = 4096
"""Maximum bytes of a path; PATH_MAX of Linux."""
MAX_LINKS = 40
"""Symlinks followed for one path; the kernel's own limit."""
LOCK_WAIT_S = 5.0
"""Seconds to wait for a folder's lock. Our changes hold it for milliseconds; a longer hold is a user's own flock."""
LOCK_POLL_S = 0.005

READ_WRITE = "rw"
PathParts = tuple[str, ...]
"""Names below a root; none of them is empty, `.` or `..`."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""O_NONBLOCK: opening a FIFO must not wait for a writer."""


def choose_volume(name: str | None, bindings: Sequence[VolumeBinding]) -> VolumeBinding:
    """Return the named volume, else the default, else the only one. Raises ToolCallRefused with the existing names."""
    if not bindings:
        raise ToolCallRefused(
            "No volume is granted to this run, so no file can be reached. The agent's definition grants them."
        )
    names = ", ".join(f"{v.name} ({v.mode})" for v in bindings)
    if name is not None:
        matching = [v for v in bindings if v.name == name]
        if not matching:
            raise ToolCallRefused(f'There is no volume "{escape_name(name[:80])}" for this run. Granted are: {names}.')
        return matching[0]
    default = [v for v in bindings if v.is_default] or (list(bindings) if len(bindings) == 1 else [])
    if not default:
        raise ToolCallRefused(f"No volume was named and none is the default. Name one of: {names}.")
    return default[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A granted folder. All methods block; all raise ToolCallRefused for errors that the model can act on."""

    name: str
    root: PathParts
    """Path of the root as names from `/`, without symlinks."""
    is_writable: bool

    @classmethod
    def from_binding(cls, binding: VolumeBinding) -> "Volume":
        if not binding.path.startswith("/"):
            raise ToolCallRefused(
                f'Volume "{binding.name}" is configured with a relative path; the operator must give it in full.'
            )
        root = resolve_symlinks((), binding.path, binding.name)
        if binding.root:
            names = binding.path.removeprefix(binding.root).split("/")
            if root != (*resolve_symlinks((), binding.root, binding.name), *filter(None, names)):
                raise ToolCallRefused(f'The folder of volume "{binding.name}" was replaced by a symlink.')
        volume = cls(name=binding.name, root=root, is_writable=binding.mode == READ_WRITE)
        with volume.open_folder(()):
            return volume

    @property
    def path(self) -> str:
        """Absolute path of the root, for example as a child process's working directory."""
        return "/" + "/".join(self.root)

    def require_writable(self) -> None:
        if not self.is_writable:
            raise ToolCallRefused(
                f'Volume "{self.name}" is read-only (ro): nothing was changed. Use a volume with mode rw.'
            )

    def locate(self, path: str) -> PathParts:
        """Return the names below the root that a path resolves to; it need not exist.

        Follows symlinks. Raises ToolCallRefused for a path that leads outside.
        """
        data = encode_text(path, "The path")
        if not path or "\0" in path or len(data) > MAX_PATH_BYTES:
            problem = "is empty" if not path else "holds a NUL" if "\0" in path else f"is over {MAX_PATH_BYTES} bytes"
            raise ToolCallRefused(f"The path {problem}. Expected is a path relative to the root of the volume.")
        parts = resolve_symlinks(self.root, path, self.name)
        if parts[: len(self.root)] != self.root:
            raise ToolCallRefused(
                f'The path "{escape_name(path)}" leads outside volume "{self.name}". Expected is a path relative to '
                "the root of the volume that stays inside it, also through symlinks."
            )
        return parts[len(self.root) :]

    @contextmanager
    def open_folder(self, parts: PathParts) -> Iterator[int]:
        """Yield the descriptor of a folder, opened name by name without following any symlink."""
        with self._translate_errors(parts):
            descriptor = os.open(self.path, _FOLDER_FLAGS)
            try:
                for name in parts:
                    below = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = below
            except BaseException:
                os.close(descriptor)
                raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_file(self, parts: PathParts) -> Iterator[int]:
        """Yield the descriptor of a regular file, for reading."""
        if not parts:
            raise ToolCallRefused(f'The path is the root folder of volume "{self.name}"; expected is a file.')
        with self.open_folder(parts[:-1]) as folder, self._translate_errors(parts):
            descriptor = _open_regular_file(folder, parts[-1], self._display_name(parts))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, parts: PathParts, limit: int, *, offset: int = 0) -> tuple[bytes, int]:
        """Return the first `limit` bytes of a file from the offset on, and its size."""
        with self.open_file(parts) as descriptor, self._translate_errors(parts):
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            return _read_bytes(descriptor, limit), os.fstat(descriptor).st_size

    def status(self, parts: PathParts) -> os.stat_result:
        """Return type, size and times; for a symlink those of the link itself."""
        if not parts:
            with self.open_folder(()) as folder:
                return os.fstat(folder)
        with self.open_folder(parts[:-1]) as folder, self._translate_errors(parts):
            return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)

    @contextmanager
    def lock_file(self, parts: PathParts) -> Iterator["LockedFile"]:
        """Lock a file: other changes through a volume in its folder wait."""
        self.require_writable()
        if not parts:
            raise ToolCallRefused(f'The path is the root folder of volume "{self.name}"; expected is a file.')
        with self.open_folder(parts[:-1]) as folder, self._translate_errors(parts):
            _lock_folder(folder, self._display_name(parts))
            yield LockedFile(folder=folder, name=parts[-1], display_name=self._display_name(parts))

    def _display_name(self, parts: PathParts) -> str:
        return f'"{escape_name("/".join(parts) or ".")}" in volume "{self.name}"'

    @contextmanager
    def _translate_errors(self, parts: PathParts) -> Iterator[None]:
        """Convert operating system errors to a ToolCallRefused that never contains a path outside the volume."""
        try:
            yield
        except OSError as error:
            raise ToolCallRefused(f"{self._display_name(parts)}: {_describe_os_error(error)}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """A locked file, given by its open folder and its name."""

    folder: int
    name: str
    display_name: str

    def read(self, limit: int) -> bytes:
        """Return at most `limit` bytes of the file's current content."""
        descriptor = _open_regular_file(self.folder, self.name, self.display_name)
        try:
            return _read_bytes(descriptor, limit)
        finally:
            os.close(descriptor)

    def replace(self, content: bytes, cancellation: CancellationToken) -> None:
        """Replace the file's content atomically and durably. Keeps the permissions of an existing file."""
        mode = self._existing_mode()
        temporary = f".loomlog-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666, dir_fd=self.folder)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                if mode is not None:
                    os.fchmod(descriptor, mode)
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(descriptor)
            cancellation.raise_if_cancelled()
            os.rename(temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self.folder)
            raise
        os.fsync(self.folder)

    def _existing_mode(self) -> int | None:
        try:
            existing = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(existing.st_mode):
            raise ToolCallRefused(
                f"{self.display_name} is {_describe_file_type(existing.st_mode)}; expected is a regular file."
            )
        return stat.S_IMODE(existing.st_mode)


def resolve_symlinks(start: PathParts, path: str, volume: str) -> PathParts:
    """Return names from `/` with every symlink followed. Missing names are kept: a file may be about to be created."""
    done: list[str] = [] if path.startswith("/") else list(start)
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink("/" + "/".join([*done, name]))
        except OSError:
            # Not a link, missing, or not readable: opening the file later reports which.
            done.append(name)
            continue
        links += 1
        if links > MAX_LINKS:
            raise ToolCallRefused(
                f'A path in volume "{volume}" leads through more than {MAX_LINKS} symlinks or in a circle.'
            )
        if target.startswith("/"):
            done.clear()
        todo.extend(target.split("/")[::-1])
    return tuple(done)


def _open_regular_file(folder: int, name: str, display_name: str) -> int:
    """Open a regular file. Checks the type before opening, because opening a device can have
    effects, and again after.
    """
    before = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(before.st_mode):
        raise ToolCallRefused(f"{display_name} is {_describe_file_type(before.st_mode)}; expected is a regular file.")
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolCallRefused(f"{display_name} changed while it was being opened. Try again.")
    return descriptor


def _read_bytes(descriptor: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(descriptor, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _lock_folder(folder: int, display_name: str) -> None:
    """Lock a folder until its descriptor is closed. Polls, because a blocking flock could not be abandoned."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise ToolCallRefused(
                    f"The folder of {display_name} was locked for {LOCK_WAIT_S:.0f} s. Try again."
                ) from error
            time.sleep(LOCK_POLL_S)


def _describe_file_type(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a symlink that was made while the path was being opened"
    return "a special file"


def _describe_os_error(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "there is no such file or folder"
        case errno.ENOTDIR | errno.ELOOP:
            return "a part of the path is not a folder, or was swapped for a symlink while it was being opened"
        case errno.EACCES | errno.EPERM:
            return "the process may not do that (permission denied)"
        case _:
            return error.strerror or "the operating system refused"
