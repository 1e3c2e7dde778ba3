"""The record of what runs, for other terminals: stack.json, and the lock of the supervisor that writes it.

The lock (flock) tells whether a supervisor is alive: the kernel drops it with the process, however it died. The lock
file's content names the process that holds it. stack.json lists its children and their addresses; it is replaced whole
after every change. A damaged stack.json is not fatal: the lock, and the list of running processes, still find
everything.

Before: children, local.  After: shutdown, `loomlog status`, `loomlog down`.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import msgspec

from loomlog.services.cli.stack.errors import StackAlreadyRunning, StackError
from loomlog.services.cli.stack.home import DISK_FULL_ERRNOS, write_atomically
from loomlog.services.cli.stack.processes import ProcessIdentity, identify

ChildState = Literal["starting", "ready", "waiting", "stopping", "stopped", "failed"]
LOCK_ATTEMPTS = 5
LOCK_RETRY_S = 0.01


class InvalidStackRecord(Exception):
    """stack.json exists and is not a valid record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord:
    """One child. `pid` is None while it does not run; `waiting` is the pause before a restart."""

    name: str
    group: int
    state: ChildState
    restarts: int
    pid: int | None
    started_s: float
    command: tuple[str, ...]
    stop_signal: str
    stop_timeout_s: float
    log: str
    url: str

    @property
    def identity(self) -> ProcessIdentity | None:
        if self.pid is None:
            return None
        return ProcessIdentity(pid=self.pid, started_s=self.started_s, command=self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRecord:
    """The whole stack: its supervisor, the addresses of broker and Postgres, its children in start order."""

    supervisor: ProcessIdentity
    kafka: str
    postgres: str
    children: tuple[ChildRecord, ...]


def save_record(path: Path, record: StackRecord) -> None:
    """Replace stack.json. Addresses in it have no password; it is readable by its owner only nevertheless."""
    write_atomically(path, json.dumps(asdict(record), indent=2) + "\n", mode=0o600)


def load_record(path: Path) -> StackRecord | None:
    """Return the record in stack.json; None when there is none. Raises InvalidStackRecord."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StackRecord)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InvalidStackRecord(f"{path}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """The lock as seen by others. `holder` is None when the file does not name it; `is_stopping`: it is a `loomlog
    down`.
    """

    is_held: bool
    holder: ProcessIdentity | None = None
    is_stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _LockHolder(ProcessIdentity):
    """Content of the lock file."""

    stopping: bool


@contextmanager
def supervisor_lock(path: Path, *, is_stopping: bool = False) -> Iterator[None]:
    """Hold the state folder for this process. Raises StackAlreadyRunning when another process has it.

    `is_stopping` is for a process that only cleans up: others wait for it to end instead of ending it.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StackError(f"The lock {path} cannot be opened: {error}. Is the state folder yours?") from error
    try:
        try:
            _acquire_lock(handle)
        except BlockingIOError as error:
            raise StackAlreadyRunning(_holder_message(path)) from error
        except OSError as error:
            raise StackError(
                f"The lock {path} cannot be taken: {error}. The state folder has to be on a disk with file locks; set "
                "LOOMLOG_HOME to a local one."
            ) from error
        _write_holder(handle, is_stopping)
        yield
    finally:
        os.close(handle)  # drops the lock; the file stays, or two processes could lock two files of one name


def _acquire_lock(handle: int) -> None:
    """Take the lock. `read_lock_state` holds it for an instant too, so the first refusal is not final."""
    for _ in range(LOCK_ATTEMPTS - 1):
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_RETRY_S)
    return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write_holder(handle: int, is_stopping: bool) -> None:
    """Write the holder to the lock file. On a full disk it is not written: only the lock itself matters."""
    os.truncate(handle, 0)
    try:
        os.pwrite(handle, (json.dumps(asdict(_this_process()) | {"stopping": is_stopping}) + "\n").encode(), 0)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise


def _holder_message(path: Path) -> str:
    state = _read_holder(path)
    who = f"process {state.holder.pid}" if state.holder is not None else "another process"
    if state.is_stopping:
        return f"The stack in {path.parent} is just being stopped, by {who}. Try again when that is done."
    return (
        f"A stack is running here already ({path.parent}, supervised by {who}). `loomlog status` shows it, "
        "`loomlog down` stops it."
    )


def read_lock_state(path: Path) -> LockState:
    """Return whether a process holds the state folder, and which one, as far as its lock file names it."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return LockState(is_held=False)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(path)
    finally:
        os.close(handle)
    return LockState(is_held=False)


def build_stack_record(kafka: str, postgres: str, children: Sequence[ChildRecord]) -> StackRecord:
    """Return the record of a stack that this process supervises."""
    return StackRecord(supervisor=_this_process(), kafka=kafka, postgres=postgres, children=tuple(children))


def _this_process() -> ProcessIdentity:
    identity = identify(os.getpid())
    assert identity is not None, "a process can always see itself"
    return identity


def _read_holder(path: Path) -> LockState:
    try:
        holder = msgspec.json.decode(path.read_bytes(), type=_LockHolder)
        identity = ProcessIdentity(pid=holder.pid, started_s=holder.started_s, command=holder.command)
        return LockState(is_held=True, holder=identity, is_stopping=holder.stopping)
    except (OSError, msgspec.MsgspecError):
        return LockState(is_held=True)  # it is just being written, or damaged: then only the lock itself is known
