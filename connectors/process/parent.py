"""Ends this process when its parent has ended, however that came about.

Before: the main of a worker process. After: the kernel.
"""

import os
import signal
import sys

from loomlog.connectors.process.hardening import control_process

PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit when that has happened already.

    A no-op where there is no such signal: there a worker has to notice that its connection was closed.
    """
    if sys.platform == "linux":
        control_process(PR_SET_PDEATHSIG, signal.SIGKILL, "this process would outlive its parent")
    if os.getppid() != parent_pid:
        sys.exit(1)
