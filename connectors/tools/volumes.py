"""A volume: the only way from a tool to a file system, and nothing outside its root can be reached through it.

Two steps, because checking a path and opening it are two moments between which another process may swap a folder for
a symlink:

  locate   the path as names below the root. Symlinks are resolved first, by hand and with a bound, then containment
           is checked on the result: `..` and absolute paths and links are all fine as long as they end inside.
  open     the located names, one after the other, each relative to the folder opened before and never through a
           symlink (O_NOFOLLOW). Whatever was swapped in since is refused by the kernel, not by a second look.

Not chosen: os.path.realpath, which recurses once per link of a chain and so can be made to overflow the stack;
openat2(RESOLVE_BENEATH), which Python does not offer and which refuses absolute links that stay inside.
Writing is a temporary file beside the target, fsynced, then renamed, then the folder fsynced: a reader sees the old or
the new content, and what the log calls written is on the disk. Changes of one folder exclude each other (flock), so
that two edits of one file in one turn cannot lose one. Known and accepted: a hard link to an outside file counts as
inside, and a process killed in the middle of a write leaves one `.loomlog-*.tmp` file.

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
"""PATH_MAX of Linux."""
MAX_LINKS = 40
"""Symlinks followed for one path: the kernel's own bound."""
LOCK_WAIT_S = 5.0
"""Changes hold a folder for milliseconds; whoever holds it for seconds is a user's own flock."""
LOCK_POLL_S = 0.005

READ_WRITE = "rw"
PathParts = tuple[str, ...]
"""Names below a root, none of them empty, `.` or `..`."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""O_NONBLOCK: opening a FIFO must not wait for a writer."""


def choose_volume(name: str | None, bindings: Sequence[VolumeBinding]) -> VolumeBinding:
    """The named volume, else the default one, else the only one. Refuses with the names there are."""
    if not bindings:
        raise ToolCallRefused(
            "No volume is granted to this run, so no file can be reached. The agent's definition grants them."
        )
    names = ", ".join(f"{v.name} ({v.mode})" for v in bindings)
    if name is not None:
        found = [v for v in bindings if v.name == name]
        if not found:
            raise ToolCallRefused(f'There is no volume "{escape_name(name[:80])}" for this run. Granted are: {names}.')
        return found[0]
    default = [v for v in bindings if v.is_default] or (list(bindings) if len(bindings) == 1 else [])
    if not default:
        raise ToolCallRefused(f"No volume was named and none is the default. Name one of: {names}.")
    return default[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A granted folder. All methods block; all raise Refusal for whatever the model can do something about."""

    name: str
    root: PathParts
    """Names from `/`, without symlinks."""
    is_writable: bool

    @classmethod
    def from_binding(cls, binding: VolumeBinding) -> "Volume":
        if not binding.path.startswith("/"):
            raise ToolCallRefused(
                f'Volume "{binding.name}" is configured with a relative path; the operator must give it in full.'
            )
        root = _resolve_symlinks((), binding.path, binding.name)
        volume = cls(name=binding.name, root=root, is_writable=binding.mode == READ_WRITE)
        with volume.open_folder(()):
            return volume

    @property
    def path(self) -> str:
        """The root for a child process to start in."""
        return "/" + "/".join(self.root)

    def require_writable(self) -> None:
        if not self.is_writable:
            raise ToolCallRefused(
                f'Volume "{self.name}" is read-only (ro): nothing was changed. Use a volume with mode rw.'
            )

    def locate(self, path: str) -> PathParts:
        """Where the path leads after symlinks, as names below the root; it need not exist. Refuses what leaves."""
        data = encode_text(path, "The path")
        if not path or "\0" in path or len(data) > MAX_PATH_BYTES:
            problem = "is empty" if not path else "holds a NUL" if "\0" in path else f"is over {MAX_PATH_BYTES} bytes"
            raise ToolCallRefused(f"The path {problem}. Expected is a path relative to the root of the volume.")
        parts = _resolve_symlinks(self.root, path, self.name)
        if parts[: len(self.root)] != self.root:
            raise ToolCallRefused(
                f'The path "{escape_name(path)}" leads outside volume "{self.name}". Expected is a path relative to '
                "the root of the volume that stays inside it, also through symlinks."
            )
        return parts[len(self.root) :]

    @contextmanager
    def open_folder(self, parts: PathParts) -> Iterator[int]:
        """The descriptor of a folder, opened name by name without following any symlink."""
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
        """The descriptor of a regular file, for reading."""
        if not parts:
            raise ToolCallRefused(f'The path is the root folder of volume "{self.name}"; expected is a file.')
        with self.open_folder(parts[:-1]) as folder, self._translate_errors(parts):
            descriptor = _open_regular_file(folder, parts[-1], self._display_name(parts))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, parts: PathParts, limit: int) -> tuple[bytes, int]:
        """The first `limit` bytes of a file, and its size when it was opened."""
        with self.open_file(parts) as descriptor, self._translate_errors(parts):
            return _read_bytes(descriptor, limit), os.fstat(descriptor).st_size

    def status(self, parts: PathParts) -> os.stat_result:
        """Type, size and times; of a symlink its own."""
        if not parts:
            with self.open_folder(()) as folder:
                return os.fstat(folder)
        with self.open_folder(parts[:-1]) as folder, self._translate_errors(parts):
            return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)

    @contextmanager
    def lock_file(self, parts: PathParts) -> Iterator["LockedFile"]:
        """Alone with a file: whoever else changes something in its folder through a volume waits."""
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
        """Turns what the operating system says into a Refusal that never names the path outside the volume."""
        try:
            yield
        except OSError as error:
            raise ToolCallRefused(f"{self._display_name(parts)}: {_describe_os_error(error)}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """A file somebody is alone with, given by its open folder and its name."""

    folder: int
    name: str
    display_name: str

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes of the file as it is now."""
        descriptor = _open_regular_file(self.folder, self.name, self.display_name)
        try:
            return _read_bytes(descriptor, limit)
        finally:
            os.close(descriptor)

    def replace(self, content: bytes, cancellation: CancellationToken) -> None:
        """The file's new content, all or nothing and on the disk. Keeps the permissions of an existing file."""
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


def _resolve_symlinks(start: PathParts, path: str, volume: str) -> PathParts:
    """Names from `/` with every symlink followed. Names that do not exist are kept: a file may be about to be made."""
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
            # Not a link, not there, or not ours to look at: opening says which, if it comes to that.
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
    """A descriptor of a regular file. Looks before it opens, because opening a device can do something; then again."""
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
    """Released when the descriptor is closed. Polled, because a blocking flock could not be given up."""
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
