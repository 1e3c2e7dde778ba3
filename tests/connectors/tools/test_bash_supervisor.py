import os
import subprocess
import sys

import pytest

from loomlog.connectors.tools import bash_supervisor


def test_a_keeper_whose_parent_is_already_gone_runs_nothing() -> None:
    keeper = [sys.executable, "-I", "-S", bash_supervisor.__file__, "1", "0.1", "echo ran"]
    if os.getpid() == 1:
        pytest.fail("this test needs a process that is not number 1")
    done = subprocess.run(keeper, capture_output=True, env={}, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_the_session_of_nobody_is_ended_at_once() -> None:
    bash_supervisor.kill_session(2**22 + 1)
