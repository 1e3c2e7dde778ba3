"""One child: what it is (`DelegatedChild`), and one life of it from start to exit (`Kept.live`).

A life: what has to be done first, the process in a session of its own, asking until it is ready, waiting until it
ends. The session means that Ctrl-C in the terminal reaches only the supervisor; the launcher, that the kernel signals
the child should the supervisor be killed.

Before: children, which decides how many lives there are.  After: launch, logfile.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loomlog.services.cli.stack.logfile import open_log, tail
from loomlog.services.cli.stack.oneshot import launched
from loomlog.services.cli.stack.processes import identify
from loomlog.services.cli.stack.record import ChildRecord, ChildState

PROBE_INTERVAL_S = 0.05
# One probe; a broker under load answers in milliseconds.
PROBE_TIMEOUT_S = 5.0
# What a service gets to become ready, and for its drain before SIGKILL.
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 4.0
# After SIGKILL only the kernel is left to wait for.
KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a child ended: exit code (negative: the signal), whether it had been ready, whether we asked it to stop."""

    code: int
    was_ready: bool
    asked: bool


Needed = Literal["always", "to begin", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A program to keep running.

    `ready` asks once and returns None when it is ready, else the reason why not; without it running is ready.
    `before_start` runs before each start and returns the arguments to use instead of `argv`; it may raise StackProblem.
    `after_exit` runs after each exit; True means "the cause is removed, start again at once, even if it was the first".
    `needed` says when everything ends because this child cannot be kept running: whenever that is so, only if it could
    not be started the first time, or never.
    """

    name: str
    needed: Needed = "always"
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str]
    cwd: Path | None = None
    url: str = ""
    ready: Callable[[], Awaitable[str | None]] | None = None
    ready_timeout_s: float = READY_TIMEOUT_S
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = STOP_TIMEOUT_S
    # What it gets when the supervisor dies without stopping it. Services are safe to kill; servers get their stop
    # signal.
    orphan_signal: signal.Signals = signal.SIGKILL
    # Options for launch.py, such as the account to run as.
    launch: tuple[str, ...] = ()
    before_start: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    after_exit: Callable[[Exit], Awaitable[bool]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What became of one start: `problem` continues a sentence that begins with the child's name."""

    problem: str
    exit: Exit
    ready_for_s: float


@dataclass(slots=True, kw_only=True)
class Kept:
    """A child under supervision: what is true of it now."""

    child: Child
    group: int
    log: Path
    state: ChildState = "starting"
    restarts: int = 0
    asked: bool = False
    argv: tuple[str, ...] = ()
    process: asyncio.subprocess.Process | None = None
    started_s: float = 0.0
    was_ready: asyncio.Event = field(default_factory=asyncio.Event)
    was_tried: asyncio.Event = field(default_factory=asyncio.Event)
    """It was ready, or its first life is over and the others go on without it."""
    task: asyncio.Task[None] | None = None

    async def live(self, change: Callable[[ChildState], Awaitable[None]]) -> Life:
        """Start it and wait until it ends, telling `change` its states. Raises StackProblem when it cannot start."""
        loop = asyncio.get_running_loop()
        self.argv = await self.child.before_start() if self.child.before_start is not None else self.child.argv
        process = await self._spawn()
        ended = asyncio.create_task(process.wait())
        since_s = loop.time()
        try:
            await change("starting")
            unready = await self._until_ready(ended)
            if unready is None:
                since_s = loop.time()
                await change("ready")
                self.was_ready.set()
                self.was_tried.set()
            elif not ended.done():
                self.kill()
            code = await ended
            self.kill()  # what it started in its group ends with it
        finally:
            ended.cancel()
        exit_ = Exit(code=code, was_ready=unready is None, asked=self.asked)
        if unready:
            problem = f"was not ready within {self.child.ready_timeout_s:g} s ({unready})"
        else:
            problem = f"ended with {_described(code)}"
        return Life(problem=problem, exit=exit_, ready_for_s=loop.time() - since_s if unready is None else 0.0)

    async def end(self) -> bool:
        """Stop the process: its signal, then SIGKILL. False when its signal was not enough."""
        process = self.process
        assert process is not None, "only a started child can be ended"
        with suppress(ProcessLookupError):  # it ends in this moment by itself
            # Not process.send_signal: that may reap the child before asyncio does, and its exit code would be lost.
            os.kill(process.pid, self.child.stop_signal)
            os.kill(process.pid, signal.SIGCONT)  # a stopped process would not notice
        in_time = await _ends(process, self.child.stop_timeout_s)
        self.kill()  # itself if it has to be, and in any case what it started in its group
        await _ends(process, KILL_TIMEOUT_S)
        return in_time

    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def kill(self) -> None:
        """SIGKILL to its whole group, which is also its session."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):  # nobody is left in it
                os.killpg(self.process.pid, signal.SIGKILL)

    def recorded(self) -> ChildRecord:
        """What others are told about it."""
        return ChildRecord(
            name=self.child.name,
            group=self.group,
            state=self.state,
            restarts=self.restarts,
            pid=self.process.pid if self.process is not None and self.running() else None,
            started_s=self.started_s,
            command=self.argv,
            stop_signal=self.child.stop_signal.name,
            stop_timeout_s=self.child.stop_timeout_s,
            log=str(self.log),
            url=self.child.url,
        )

    def last_words(self) -> str:
        """The end of its log, to put behind a message."""
        lines = tail(self.log)
        return f" Its log {self.log} ends with:\n{lines}" if lines else f" Its log {self.log} is empty."

    async def _spawn(self) -> asyncio.subprocess.Process:
        if not self.argv:
            raise ValueError(f"child {self.child.name!r} has no program to run")
        output = await asyncio.to_thread(open_log, self.log)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *launched(self.argv, parent_dies=self.child.orphan_signal, options=self.child.launch),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.child.environment),
                cwd=self.child.cwd,
                start_new_session=True,
            )
        finally:
            output.close()
        found = identify(self.process.pid, command=self.argv)
        self.started_s = found.started_s if found is not None else 0.0
        return self.process

    async def _until_ready(self, ended: "asyncio.Task[int]") -> str | None:
        """None when it is ready, "" when it ended before, else the last reason why it was not ready in time."""
        if self.child.ready is None:
            return None
        reason = "it was never asked"
        try:
            async with asyncio.timeout(self.child.ready_timeout_s):
                while not ended.done():
                    try:
                        async with asyncio.timeout(PROBE_TIMEOUT_S):
                            answer = await self.child.ready()
                    except TimeoutError:
                        answer = f"no answer within {PROBE_TIMEOUT_S:g} s"
                    if answer is None:
                        return None
                    reason = answer
                    await asyncio.wait((ended,), timeout=PROBE_INTERVAL_S)
        except TimeoutError:
            return reason
        return ""


async def _ends(process: asyncio.subprocess.Process, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _described(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
