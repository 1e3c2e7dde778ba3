"""One child: its specification (`ChildSpec`), and one process of it from start to exit (`SupervisedChild.run_once`).

`run_once` does the preparation, starts the process in a session of its own, probes until it is ready, and waits until
it ends. The session means that Ctrl-C in the terminal reaches only the supervisor; the launcher makes the kernel signal
the child if the supervisor is killed.

Before: children, which decides about restarts.  After: launch, logfile.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from loomlog.services.cli.stack.logfile import open_log, read_tail
from loomlog.services.cli.stack.oneshot import launcher_argv
from loomlog.services.cli.stack.processes import identify
from loomlog.services.cli.stack.record import ChildRecord, ChildState

PROBE_INTERVAL_S = 0.05
# Time limit of one probe; a broker under load answers in milliseconds.
PROBE_TIMEOUT_S = 5.0
# Time for a service to become ready, and for its drain before SIGKILL.
READY_TIMEOUT_S = 30.0
# The same on a machine that has more to do than it has cores for: it is waited for while it makes progress, so long.
BUSY_READY_TIMEOUT_S = 600.0
# Share of a core that a starting program gets at the least on such a machine; one that waits in vain uses less.
PROGRESS_CPU_SHARE = 0.01
STOP_TIMEOUT_S = 4.0
# Time for the kernel to remove a killed process.
KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildExit:
    """How a child ended: exit code (negative: the signal), whether it had been ready, whether it was asked to stop."""

    code: int
    was_ready: bool
    stop_requested: bool


Requirement = Literal["always", "to begin", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A program to keep running.

    `ready` probes once and returns None when it is ready, else the reason why not; without it running means ready.
    `before_start` runs before each start and returns the arguments to use instead of `argv`; it may raise StackError.
    `after_exit` runs after each exit; True means "the cause is removed, restart at once, even if it was the first
    start". `needed` states when the whole stack ends because this child cannot be kept running: always, only when its
    first start failed, or never.
    """

    name: str
    required: Requirement = "always"
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str]
    cwd: Path | None = None
    url: str = ""
    ready: Callable[[], Awaitable[str | None]] | None = None
    ready_timeout_s: float = READY_TIMEOUT_S
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = STOP_TIMEOUT_S
    # Signal to it when the supervisor dies without stopping it. Services are safe to kill; servers get their stop
    # signal.
    orphan_signal: signal.Signals = signal.SIGKILL
    # Options for launch.py, such as the account to run as.
    launch_options: tuple[str, ...] = ()
    before_start: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    after_exit: Callable[[ChildExit], Awaitable[bool]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAttempt:
    """The result of one start: `problem` continues a sentence that begins with the child's name."""

    problem: str
    exit: ChildExit
    ready_duration_s: float


@dataclass(slots=True, kw_only=True)
class SupervisedChild:
    """A child under supervision, with its current state."""

    spec: ChildSpec
    group: int
    log: Path
    state: ChildState = "starting"
    restarts: int = 0
    stop_requested: bool = False
    argv: tuple[str, ...] = ()
    process: asyncio.subprocess.Process | None = None
    started_s: float = 0.0
    became_ready: asyncio.Event = field(default_factory=asyncio.Event)
    log_start: int = 0
    """Size of the log when this process was started: what is before is of earlier ones."""
    first_attempt_done: asyncio.Event = field(default_factory=asyncio.Event)
    """It was ready, or its first process has ended and the others continue without it."""
    task: asyncio.Task[None] | None = None

    async def run_once(self, on_state: Callable[[ChildState], Awaitable[None]]) -> ChildAttempt:
        """Start it and wait until it ends, reporting states to `on_state`. Raises StackError when it cannot start."""
        loop = asyncio.get_running_loop()
        self.argv = await self.spec.before_start() if self.spec.before_start is not None else self.spec.argv
        process = await self._spawn()
        ended = asyncio.create_task(process.wait())
        since_s = loop.time()
        try:
            await on_state("starting")
            unready = await self._wait_until_ready(ended)
            if unready is None:
                since_s = loop.time()
                await on_state("ready")
                self.became_ready.set()
                self.first_attempt_done.set()
            elif not ended.done():
                self.kill()
            code = await ended
            self.kill()  # other processes of its group end with it
        finally:
            ended.cancel()
        exit_ = ChildExit(code=code, was_ready=unready is None, stop_requested=self.stop_requested)
        if unready:
            problem = f"was not ready within {loop.time() - since_s:.1f} s ({unready})"
        else:
            problem = f"ended with {_describe_exit_code(code)}"
        return ChildAttempt(
            problem=problem, exit=exit_, ready_duration_s=loop.time() - since_s if unready is None else 0.0
        )

    async def stop(self) -> bool:
        """Stop the process: its signal, then SIGKILL. False when its signal was not enough."""
        process = self.process
        assert process is not None, "only a started child can be ended"
        with suppress(ProcessLookupError):  # it has just ended by itself
            # Not process.send_signal: that may reap the child before asyncio does, and its exit code would be lost.
            os.kill(process.pid, self.spec.stop_signal)
            os.kill(process.pid, signal.SIGCONT)  # a stopped process would not handle the signal
        in_time = await _wait_for_exit(process, self.spec.stop_timeout_s)
        self.kill()  # the process if necessary, and the rest of its group in any case
        await _wait_for_exit(process, KILL_TIMEOUT_S)
        return in_time

    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def kill(self) -> None:
        """Send SIGKILL to its whole group, which is also its session."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):  # the group is empty
                os.killpg(self.process.pid, signal.SIGKILL)

    def to_record(self) -> ChildRecord:
        """Return its record for other terminals."""
        return ChildRecord(
            name=self.spec.name,
            group=self.group,
            state=self.state,
            restarts=self.restarts,
            pid=self.process.pid if self.process is not None and self.is_running() else None,
            started_s=self.started_s,
            command=self.argv,
            stop_signal=self.spec.stop_signal.name,
            stop_timeout_s=self.spec.stop_timeout_s,
            log=str(self.log),
            url=self.spec.url,
        )

    def log_tail(self) -> str:
        """Return the end of its log, to append to a message."""
        lines = read_tail(self.log, start=self.log_start)
        return f" Its log {self.log} ends with:\n{lines}" if lines else f" Its log {self.log} is empty."

    async def _spawn(self) -> asyncio.subprocess.Process:
        if not self.argv:
            raise ValueError(f"child {self.spec.name!r} has no program to run")
        output = await asyncio.to_thread(open_log, self.log)
        self.log_start = output.tell()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *launcher_argv(
                    self.argv, parent_death_signal=self.spec.orphan_signal, options=self.spec.launch_options
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.spec.environment),
                cwd=self.spec.cwd,
                start_new_session=True,
            )
        finally:
            output.close()
        identity = identify(self.process.pid, command=self.argv)
        self.started_s = identity.started_s if identity is not None else 0.0
        return self.process

    async def _wait_until_ready(self, exit_task: "asyncio.Task[int]") -> str | None:
        """Return None when it is ready, "" when it ended before, else the last reason why it was not ready in time."""
        if self.spec.ready is None:
            return None
        reason = "it was never asked"
        clock = asyncio.get_running_loop().time
        began_s = seen_s = clock()
        seen = await asyncio.to_thread(self._measure)
        while not exit_task.done():
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    answer = await self.spec.ready()
            except TimeoutError:
                answer = f"no answer within {PROBE_TIMEOUT_S:g} s"
            if answer is None:
                return None
            reason = answer
            await asyncio.wait((exit_task,), timeout=PROBE_INTERVAL_S)
            waited_s = clock() - seen_s
            if waited_s > self.spec.ready_timeout_s:
                now = await asyncio.to_thread(self._measure)
                is_late = clock() - began_s > BUSY_READY_TIMEOUT_S
                if is_late or not is_busy() or not now.has_progressed_since(seen, waited_s):
                    return reason
                seen, seen_s = now, clock()
        return ""

    def _measure(self) -> "Progress":
        """Return what the process and its children have done. Reads every process: blocking."""
        assert self.process is not None, "only a started child can be measured"
        try:
            program = psutil.Process(self.process.pid)
            times = [one.cpu_times() for one in (program, *program.children(recursive=True))]
        except psutil.Error:
            times = []  # it has just ended
        log_bytes = self.log.stat().st_size if self.log.exists() else 0
        return Progress(cpu_s=sum(one.user + one.system for one in times), log_bytes=log_bytes)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a program has done since its start: seconds of CPU, and bytes of its log."""

    cpu_s: float
    log_bytes: int

    def has_progressed_since(self, before: "Progress", elapsed_s: float) -> bool:
        """Whether it has done more than wait since then."""
        return self.log_bytes != before.log_bytes or self.cpu_s - before.cpu_s >= PROGRESS_CPU_SHARE * elapsed_s


def is_busy() -> bool:
    """Whether programs have waited for a core or a disk during the last minute."""
    return os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


async def _wait_for_exit(process: asyncio.subprocess.Process, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
