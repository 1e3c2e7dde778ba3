import signal
import subprocess
import sys

import psutil
import pytest

from loomlog.services.cli.stack.launch import CANNOT_LAUNCH, LAUNCHER
from loomlog.services.cli.stack.oneshot import launcher_argv
from tests.services.cli.stack.programs import RUNS_ON, python

ON_LINUX = pytest.mark.xfail(
    sys.platform != "linux", reason="only Linux tells a child that its parent died", strict=True
)


@ON_LINUX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_gets_its_signal_when_its_parent_is_killed(number: signal.Signals) -> None:
    code = (
        "import os, subprocess, sys\n"
        "argv = [sys.executable, '-I', '-S', sys.argv[1], '--parent', f'{os.getpid()}:{sys.argv[2]}', '--', "
        "sys.executable, '-I', '-S', '-c', 'import os; print(os.getpid(), flush=True)\\n' + sys.argv[3]]\n"
        "subprocess.run(argv)"
    )
    parent = subprocess.Popen(python(code, LAUNCHER, str(int(number)), RUNS_ON), stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait(timeout=30)
        try:
            assert child.wait(timeout=30) in (None, -number)
        finally:
            if child.is_running():
                child.kill()


@ON_LINUX
def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    argv = list(launcher_argv(python("print('began')"), parent_death_signal=signal.SIGKILL))
    argv[argv.index("--parent") + 1] = f"1:{int(signal.SIGKILL)}"
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "the supervisor 1 is gone" in ended.stderr
    assert ended.stdout == ""


def test_a_child_keeps_its_arguments_and_pid() -> None:
    argv = launcher_argv(
        python("import os, sys\nprint(os.getpid(), sys.argv[1:])", "--parent", "--", "x y"),
        parent_death_signal=signal.SIGTERM,
    )
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=30)
    assert output.strip() == f"{process.pid} ['--parent', '--', 'x y']"


def test_a_program_that_cannot_be_started_has_its_own_exit_code() -> None:
    argv = launcher_argv(("/absent",), parent_death_signal=signal.SIGTERM)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == CANNOT_LAUNCH
    assert "cannot start /absent" in ended.stderr
