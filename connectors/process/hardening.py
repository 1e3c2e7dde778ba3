"""Protects this process from other programs of the same user.

Linux shows a process's environment and memory in /proc/<pid>/environ and /proc/<pid>/mem to every program of the same
user. A Bash command that a model writes is such a program, and the environment contains the keys of providers, broker
and Postgres; removing them from os.environ would not change what the kernel shows. A process that is not dumpable shows
neither, except to root. The price: no core dump, and a profiler or debugger needs root.

Children are not protected: exec makes a program dumpable again, so each calls this itself.
"""

import ctypes
import os
import sys

PR_SET_DUMPABLE = 4


def disable_process_dumping() -> None:
    """Make this process not dumpable; a no-op where there is no /proc. Raises OSError when the kernel refuses."""
    if sys.platform != "linux":
        return
    control_process(PR_SET_DUMPABLE, 0, "Bash commands could read our environment")


def control_process(option: int, value: int, consequence: str) -> None:
    """Call prctl(). Raises OSError with the consequence when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}; {consequence}")
