"""Becomes the program of an MCP server, and ends with the process that started it.

    python -I -S stdio_launcher.py PARENT_PID COMMAND [ARGUMENT ...]

Run as a file of its own: it imports nothing of ours, so that it costs little before it becomes something else.

Before: stdio_transport.py. After: the server.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT_RUN = 127
"""Exit status of shells for a command that cannot be run."""


def main(arguments: list[str]) -> int:
    """Replace this process by the command; return only when that is not possible."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return CANNOT_RUN
    try:
        os.execvp(command[0], command)  # noqa: S606 - the operator's configuration names the program
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - shown in the error of the session
    return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
