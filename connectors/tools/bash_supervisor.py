"""The process that a shell command runs under: it ends whatever the command leaves behind.

    bash_supervisor.py PARENT_PID GRACE_S COMMAND

On Linux it makes itself the reaper of its descendants, so a process that leaves its group and session and loses its
parent becomes a child of this one instead of one of init. It runs the command in a group of its own, waits for it, then
ends everything that is left: SIGTERM, the grace, SIGKILL until no child is left. SIGTERM to it does the same at once,
and the kernel sends that SIGTERM when the parent dies, so a killed runtime leaves no command behind that a second one
would run again. It exits with the command's status, 128 + n for signal n.

The command's environment has a prefix before each name, because Python would interpret some names and adds LC_CTYPE to
its own environment. Standard library only, and started with -I -S: it costs about 20 ms and 10 MB. On other systems
than Linux it can only end the command's process group.

Before: bash.py. After: /bin/sh.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENVIRONMENT_PREFIX = "COMMAND_"
POLL_S = 0.01
KILL_TIMEOUT_S = 5.0
"""Time for the kernel to remove killed processes; one that hangs on a dead disk may never go."""


class TerminationRequested(BaseException):
    """SIGTERM was received. A BaseException, so that no handler in between swallows it."""


def main(parent_pid: int, grace_s: float, command: str) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, _handle_sigterm)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        return 1  # the parent died before the kernel was asked to signal that
    shell = os.fork()
    if shell == 0:
        _exec_shell(command)
    status = 128 + signal.SIGTERM
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        status = _wait_for_shell(shell)
    except TerminationRequested:
        pass
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _terminate_all(shell, grace_s)
    return status


def kill_session(session_id: int) -> None:
    """Kill what is left of a session. For the parent, when the supervisor that led it was killed before its work was
    done.

    Processes that the command put into other sessions are not found this way; only the supervisor finds them.
    """
    until = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < until:
        members = [
            process.pid for process in _list_processes() if process.session_id == session_id and process.state != "Z"
        ]
        if not members:
            return
        for pid in members:
            _send_signal(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _handle_sigterm(number: int, frame: FrameType | None) -> None:
    raise TerminationRequested


def _exec_shell(command: str) -> None:
    os.setpgid(0, 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores the last two; a pipeline such as `yes | head -1` depends on the first of them.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    names = [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]
    environment = {name.removeprefix(ENVIRONMENT_PREFIX): os.environ[name] for name in names}
    try:
        os.execve("/bin/sh", ["/bin/sh", "-c", command], environment)  # noqa: S606 running what it is given is what this program is for
    except OSError as error:
        os.write(2, f"/bin/sh: {error.strerror}\n".encode())
        os._exit(127)


def _wait_for_shell(shell_pid: int) -> int:
    """Return the shell's exit status. Orphans that end meanwhile are reaped too."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == shell_pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _terminate_all(shell_pid: int, grace_s: float) -> None:
    _signal_all(shell_pid, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while _has_children():
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    until = time.monotonic() + KILL_TIMEOUT_S
    while _has_children() and time.monotonic() < until:
        # Repeatedly: a process may have started another one since the last scan.
        _signal_all(shell_pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _signal_all(shell_pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(shell_pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # the group is empty, or has only zombies
    for pid in _list_descendants():
        _send_signal(pid, number)


def _send_signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended in between, or became another user, which a command can do only with that user's help


def _has_children() -> bool:
    """Reap ended children. Every descendant is below a child, so without children there are none."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _list_descendants() -> list[int]:
    """Return the processes below this one."""
    children: dict[int, list[int]] = {}
    for process in _list_processes():
        children.setdefault(process.parent_pid, []).append(process.pid)
    descendants: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        descendants += below
        todo += below
    return descendants


class ProcessInfo(NamedTuple):
    pid: int
    state: str
    parent_pid: int
    session_id: int


def _list_processes() -> Iterator[ProcessInfo]:
    """Iterate all processes, from /proc; none where there is no /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name is in parentheses and may itself contain any character.
                state, parent, _, session, *_ = file.read().rpartition(b")")[2].split()
        except (OSError, ValueError):
            continue  # it ended while its entry was read
        yield ProcessInfo(pid=int(name), state=state.decode(), parent_pid=int(parent), session_id=int(session))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))
