"""Secrets as files below a folder, as Kubernetes and Docker mount them.

A mount replaces its files by way of symbolic links within it, so links are followed, and what they lead to must be in
the same folder: the real path is opened part by part, without following a link that appears in between.

Before: outside_stores.py. After: the file system.
"""

import asyncio
import errno
import os
import stat
from pathlib import Path

from loomlog.connectors.errors import Permanent, Transient

FILE_BYTES_MAX = 16 * 1024
"""Bytes of a secret, as of one that is stored here."""


async def read_secret_file(directory: str, prefix: str, path: str) -> str:
    """Return the text of a file without its last line end. Raises Permanent and Transient."""
    return await asyncio.to_thread(_read, directory, prefix, path)


def _read(directory: str, prefix: str, path: str) -> str:
    try:
        base = Path(directory).resolve(strict=True)
        root = _within(base / prefix, base)
        target = _within(root / path, root)
        data = _read_beneath(root, target.relative_to(root).parts)
    except FileNotFoundError as error:
        raise Permanent("there is no such file", kind="not_found") from error
    except RuntimeError as error:
        raise Permanent("a symbolic link leads to itself", kind="forbidden") from error
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "an error")
        if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
            raise Permanent(f"the file cannot be read ({reason})", kind="forbidden") from error
        raise Transient(f"the file cannot be read now ({reason})", kind="unavailable") from error
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise Permanent("the file is not UTF-8", kind="invalid") from error


def _within(path: Path, root: Path) -> Path:
    """Return the real path. Raises Permanent when it leads out of the root, and FileNotFoundError."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(root):
        raise Permanent("the file is outside of its folder", kind="forbidden")
    return real


def _read_beneath(root: Path, parts: tuple[str, ...]) -> bytes:
    if not parts:
        raise Permanent("it is a folder", kind="invalid")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without O_NONBLOCK the opening of a pipe waits for its writer.
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Permanent("it is not a file", kind="invalid")
        data = b""
        while len(data) <= FILE_BYTES_MAX and (chunk := os.read(file, FILE_BYTES_MAX + 1 - len(data))):
            data += chunk
    finally:
        os.close(file)
    if len(data) > FILE_BYTES_MAX:
        raise Permanent(f"the file has more than {FILE_BYTES_MAX} bytes", kind="invalid")
    return data
