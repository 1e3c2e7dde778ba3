import errno
import fcntl
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from loomlog.services.cli.stack.errors import StackAlreadyRunning, StackError
from loomlog.services.cli.stack.record import (
    ChildRecord,
    InvalidStackRecord,
    LockState,
    build_stack_record,
    load_record,
    read_lock_state,
    save_record,
    supervisor_lock,
)
from tests.services.cli.stack.programs import python

CHILD = ChildRecord(
    name="api", group=2, state="ready", restarts=1, pid=7, started_s=1.5, command=("a", "b"), stop_signal="SIGTERM",
    stop_timeout_s=4.0, log="/l", url="http://127.0.0.1:8080",
)  # fmt: skip


def test_a_record_comes_back_as_it_was_saved_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    record = build_stack_record("127.0.0.1:1", "postgresql://x", [CHILD])
    save_record(tmp_path / "stack.json", record)
    assert load_record(tmp_path / "stack.json") == record
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    assert record.supervisor.pid == os.getpid()


def test_no_record_is_none(tmp_path: Path) -> None:
    assert load_record(tmp_path / "stack.json") is None


@pytest.mark.parametrize("damage", ["", "{half", "[]", "null", "{}", '{"supervisor": 1}'])
def test_a_damaged_record_says_where_and_how(tmp_path: Path, damage: str) -> None:
    (tmp_path / "stack.json").write_text(damage)
    with pytest.raises(InvalidStackRecord, match=r"stack\.json: \w+Error"):
        load_record(tmp_path / "stack.json")


def test_an_unknown_state_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    save_record(path, build_stack_record("", "", [CHILD]))
    path.write_text(path.read_text().replace('"ready"', '"raedy"'))
    with pytest.raises(InvalidStackRecord, match="Invalid enum value 'raedy'"):
        load_record(path)


def test_a_full_disk_keeps_nobody_from_taking_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(handle: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with supervisor_lock(tmp_path / "lock"):
        assert read_lock_state(tmp_path / "lock") == LockState(is_held=True)


def test_a_lock_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(StackError, match=r"absent/lock cannot be opened: .*No such file"),
        supervisor_lock(tmp_path / "absent" / "lock"),
    ):
        pass


def test_the_lock_names_its_holder_and_keeps_others_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert read_lock_state(lock) == LockState(is_held=False)
    with supervisor_lock(lock):
        state = read_lock_state(lock)
        assert state.is_held
        assert not state.is_stopping
        assert state.holder is not None
        assert state.holder.pid == os.getpid()
        with (
            pytest.raises(StackAlreadyRunning, match=rf"supervised by process {os.getpid()}\). `loomlog status`"),
            supervisor_lock(lock),
        ):
            pass
    assert read_lock_state(lock) == LockState(is_held=False)
    with supervisor_lock(lock):
        pass


def test_a_damaged_lock_file_is_still_a_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with supervisor_lock(lock):
        lock.write_text("x")
        assert read_lock_state(lock) == LockState(is_held=True)
        with pytest.raises(StackAlreadyRunning, match="supervised by another process"), supervisor_lock(lock):
            pass


def test_who_only_stops_a_stack_says_so(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with supervisor_lock(lock, is_stopping=True):
        assert read_lock_state(lock).is_stopping
        with (
            pytest.raises(StackAlreadyRunning, match=rf"just being stopped, by process {os.getpid()}"),
            supervisor_lock(lock),
        ):
            pass


def test_a_look_at_the_lock_keeps_nobody_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    with lock.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        threading.Timer(0.015, fcntl.flock, (looked_at, fcntl.LOCK_UN)).start()
        with supervisor_lock(lock):
            assert read_lock_state(lock).is_held


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with supervisor_lock(lock):
        process = subprocess.Popen(python("import sys; sys.stdin.read()"), stdin=subprocess.PIPE)
    with process:
        assert read_lock_state(lock) == LockState(is_held=False)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
