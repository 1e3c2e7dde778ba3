"""The state folder: the layout of everything the local stack stores, and whether it can be used.

    <root>/  format  lock  ports.json  stack.json  .gitignore      the running stack, its ports and children
             logs/<child>.log                              bounded (logfile.py)
             kafka/  server.properties  data/  tmp/        the log
             postgres/  data/                              the projections
             cache/  jars-<hash>/  broker-<hash>.jsa       may be deleted at any time, may be shared by several folders

The folder is checked before anything is started: a full or read-only disk is one sentence here, and would be a stack
trace of another program later.

Not chosen: a folder under the user's home. With a folder per project two checkouts can run at the same time.

Before: the command line, which passes LOOMLOG_HOME or `.loomlog`.  After: every other module here.
"""

import errno
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loomlog.connectors.storage.private_files import FOLDER_MODE
from loomlog.services.cli.stack.errors import DiskFull, StackError

# Space for the first start: jars 43 MB, archive 50 MB, an empty Postgres 50 MB, Kafka's files; the rest is for work.
MINIMUM_FREE_BYTES = 1024**3
# A later start needs less space, but without any it would only fail again.
RESTART_FREE_BYTES = 100 * 1024**2
FORMAT = "3"
"""Version of the content of a state folder. Raised when the records in an existing one can no longer be read."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
# Java splits a class path at ':', Kafka log.dirs at ','; neither can be escaped. A newline would end a setting.
FORBIDDEN_PATH_CHARACTERS = ":,\n\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The layout of one state folder. Created by `open_home`, which ensures that it can be used."""

    root: Path
    cache: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def record(self) -> Path:
        return self.root / "stack.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def kafka(self) -> Path:
        return self.root / "kafka"

    @property
    def kafka_data(self) -> Path:
        return self.kafka / "data"

    @property
    def kafka_settings(self) -> Path:
        return self.kafka / "server.properties"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def postgres_password(self) -> Path:
        """The passfile of libpq with the password of the local Postgres."""
        return self.root / "postgres.pass"

    @property
    def postgres_data(self) -> Path:
        return self.postgres / "data"

    @property
    def needed_bytes(self) -> int:
        """Return the free space that a start needs: after the first one, jars and databases exist already."""
        was_started = self.kafka_data.exists() or self.postgres_data.exists()
        return RESTART_FREE_BYTES if was_started else MINIMUM_FREE_BYTES


def open_home(root: Path, *, cache: Path | None = None) -> Home:
    """Open the state folder at `root`, created if missing. Raises StackError when it is not writable or its name is
    invalid.
    """
    root = root.expanduser().absolute()
    # Where a linked cache really is: the broker's class archive is for the jars of one path.
    home = Home(root=root, cache=(cache or root / "cache").resolve())
    for folder in (home.root, home.cache):
        unusable = sorted({character for character in str(folder) if character in FORBIDDEN_PATH_CHARACTERS})
        if unusable:
            named = " and ".join(repr(character) for character in unusable)
            raise StackError(
                f"The state folder {folder} has {named} in its path, which Java and Kafka cannot take. "
                "Set LOOMLOG_HOME to a folder without it."
            )
    try:
        for folder in (home.root, home.cache, home.logs, home.kafka, home.postgres):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (home.kafka, home.logs):  # messages of people and models
            folder.chmod(FOLDER_MODE)
        ignore = home.root / ".gitignore"
        if not ignore.exists():
            write_atomically(ignore, "*\n")  # the folder is not part of the project it is in
        with tempfile.TemporaryFile(dir=home.root) as probe:
            probe.write(b"writable")
        _check_format(home)
    except OSError as error:
        raise StackError(
            f"The state folder {home.root} cannot be written: {error}. loomlog keeps its log, its database and its "
            "messages there. Free or repair it, or set LOOMLOG_HOME to a folder you can write."
        ) from error
    return home


def _check_format(home: Home) -> None:
    """Mark a new state folder with FORMAT; refuse one whose log was written in another format."""
    mark = home.root / "format"
    if not mark.exists() and not home.kafka_data.exists():
        write_atomically(mark, f"{FORMAT}\n")
    if not mark.exists() or mark.read_text().strip() != FORMAT:
        raise StackError(
            f"The state folder {home.root} was written by another version of loomlog, whose records this one cannot "
            "read. Move it away or delete it, or set LOOMLOG_HOME to another folder."
        )


def require_space(folder: Path, *, minimum_bytes: int) -> None:
    """Raise DiskFull when the disk of `folder` has less than `minimum_bytes` free."""
    free = shutil.disk_usage(folder).free
    if free < minimum_bytes:
        raise DiskFull(
            f"The disk of the state folder {folder} has {_format_mebibytes(free)} free; at least "
            f"{_format_mebibytes(minimum_bytes)} "
            f"are needed, {_format_mebibytes(minimum_bytes - free)} more. Free some space, or set "
            "LOOMLOG_HOME to a folder on "
            "another disk."
        )


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` by `text` atomically: a reader, or a crash, sees the old content or the new.

    Raises DiskFull when the disk is full, OSError when it cannot be written for another reason.
    """
    try:
        _replace_file(path, text, mode)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise DiskFull(f"The file {path} cannot be written: {error}. Free some space.") from error


def _replace_file(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _format_mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 1024**2:,.0f} MiB"
