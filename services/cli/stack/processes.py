"""Process identities that survive the reuse of a pid, and stopping exactly the intended process.

A pid alone names whatever process has it now. An identity is pid, start time and command; all three have to match
before a signal is sent, so a stale file can never hit another process.

Before: record, shutdown.  After: the operating system.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

# psutil derives the start time from the boot time, which moves with the clock; a pid is not reused this quickly.
START_TIME_TOLERANCE_S = 2.0
POLL_INTERVAL_S = 0.05
# On an overloaded machine a process can lose its processor during exec.
EXEC_ATTEMPTS = 100
EXEC_RETRY_S = 0.002
# Time for the kernel to remove a killed process.
KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process at a certain time. `command` is its argument list, or the end of it (a launcher may precede it)."""

    pid: int
    started_s: float
    command: tuple[str, ...]


def identify(pid: int, *, command: Sequence[str] | None = None) -> ProcessIdentity | None:
    """Return the identity of a running process; None when it is gone. `command` is the one it is
    about to exec, if any.
    """
    try:
        process = psutil.Process(pid)
        return ProcessIdentity(
            pid=pid, started_s=process.create_time(), command=tuple(command or _read_arguments(process))
        )
    except psutil.Error:
        return None


def find_process(identity: ProcessIdentity) -> psutil.Process | None:
    """Return the process if it still runs and is the intended one."""
    try:
        process = psutil.Process(identity.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        if abs(process.create_time() - identity.started_s) > START_TIME_TOLERANCE_S:
            return None
        # argv[0] may differ (a resolved link), and a launcher's own arguments may come first.
        arguments = identity.command[1:] or identity.command
        return process if tuple(_read_arguments(process)[-len(arguments) :]) == arguments else None
    except psutil.Error:
        return None


def _read_arguments(process: psutil.Process) -> list[str]:
    """Return its argument list. During exec (in a launcher) it is empty for an instant."""
    for _ in range(EXEC_ATTEMPTS - 1):
        if arguments := process.cmdline():
            return arguments
        time.sleep(EXEC_RETRY_S)
    return process.cmdline()


def find_processes_by_arguments(matches: Callable[[Sequence[str]], bool]) -> list[ProcessIdentity]:
    """Return running processes whose argument list matches, except this one. Reads every process:
    call it in a thread.
    """
    identities = []
    for process in psutil.process_iter(["pid", "cmdline", "create_time", "status"]):
        seen: Mapping[str, Any] = process.info
        if not seen["cmdline"] or seen["pid"] == os.getpid() or seen["status"] == psutil.STATUS_ZOMBIE:
            continue
        if matches(seen["cmdline"]):
            identities.append(
                ProcessIdentity(pid=seen["pid"], started_s=seen["create_time"], command=tuple(seen["cmdline"]))
            )
    return identities


async def stop_process(identity: ProcessIdentity, *, stop_signal: signal.Signals, timeout_s: float) -> str | None:
    """Stop a process that is not our child: `stop_signal`, then SIGKILL to its group.

    Returns how it was stopped; None when it was gone.
    """
    if find_process(identity) is None:
        return None
    _send_signal(identity, stop_signal)
    if await _wait_until_gone(identity, timeout_s):
        return stop_signal.name
    kill_group(identity)
    if not await _wait_until_gone(identity, KILL_TIMEOUT_S):
        return f"SIGKILL, without effect for {KILL_TIMEOUT_S:g} s"
    return f"SIGKILL, {stop_signal.name} had no effect for {timeout_s:g} s"


def kill_group(identity: ProcessIdentity) -> None:
    """Send SIGKILL to the process and, when it leads its own group, to the whole group."""
    if find_process(identity) is None:
        return
    try:
        if os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, signal.SIGKILL)
        else:
            os.kill(identity.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def _send_signal(identity: ProcessIdentity, signal_number: signal.Signals) -> None:
    try:
        os.kill(identity.pid, signal_number)
        if signal_number != signal.SIGKILL:
            os.kill(identity.pid, signal.SIGCONT)  # a stopped process would not handle the signal
    except ProcessLookupError:
        pass  # it has ended meanwhile


async def _wait_until_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    for _ in range(max(1, round(timeout_s / POLL_INTERVAL_S))):
        if find_process(identity) is None:
            return True
        await asyncio.sleep(POLL_INTERVAL_S)
    return find_process(identity) is None
