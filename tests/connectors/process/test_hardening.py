"""Programs of one user that look at each other, each a process of its own; root would see everything."""

import os
import subprocess
import sys
from pathlib import Path

import loomlog.connectors.process.hardening

SOURCE = Path(loomlog.connectors.process.hardening.__file__)
LOAD = f"import ctypes, os; exec(open({str(SOURCE)!r}).read()); "
HIDE = "disable_process_dumping(); "
TELL = "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True); "
# Tests run by root become another user here. That alone makes a process not dumpable; starting a program, as a service
# is started, undoes it.
LEAVE_ROOT = "os.geteuid() or (os.setgid(65534), os.setuid(65534)); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0); "


def test_the_process_is_not_dumpable_and_its_children_are() -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import ctypes; ' + {TELL!r}], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", LOAD + TELL + HIDE + TELL + child],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.split() == ["1", "0", "1"]


def test_its_environment_can_no_longer_be_read_by_a_program_of_the_same_user() -> None:
    assert can_be_read(LOAD + LEAVE_ROOT)
    assert not can_be_read(LOAD + LEAVE_ROOT + HIDE)


def can_be_read(program: str) -> bool:
    """Whether another program of the same user finds a key in the environment of this one."""
    looked_at = subprocess.Popen(
        [sys.executable, "-c", program + "print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PROVIDER_KEY": "sk-1"},
    )
    try:
        assert looked_at.stdout is not None
        assert looked_at.stdout.readline() == "ready\n"
        look = f"print('PROVIDER_KEY=sk-1' in open('/proc/{looked_at.pid}/environ').read())"
        looker = subprocess.run(
            [sys.executable, "-c", LOAD + LEAVE_ROOT + look], capture_output=True, text=True, timeout=30, check=False
        )
        assert looker.returncode == 0 or "PermissionError" in looker.stderr, looker.stderr
        return looker.stdout == "True\n"
    finally:
        looked_at.kill()
        looked_at.communicate(timeout=30)
