"""Supervision: named child processes, started together, kept running, stopped in reverse order.

A `Supervisor` starts groups of children. A group is started concurrently and waited for; groups are stopped last
first. The first start of a child must succeed (a wrong setting should be a message, not a loop); later deaths are
answered with a restart after a growing pause, and after MAX_RESTARTS in a row the supervisor gives up and says why. A
child that is not needed ends nothing: it is tried again every WITHOUT_IT_PAUSE_S. A full disk ends nothing either: a
child that died of it is started again once there is space, however long that takes.
After every change the states are handed to `record`, so that other terminals can find and stop it all.

Not chosen: systemd, supervisord, honcho. The stack has to work the same in a bare container and on a laptop, and what
is special here (readiness, what to do before a start and after an exit) would have to be glued to them anyway.

Before: local.  After: child, record, logfile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loomlog.services.cli.stack.child import Child, Exit, Kept
from loomlog.services.cli.stack.logfile import bound_log
from loomlog.services.cli.stack.problems import NoSpace, StackProblem
from loomlog.services.cli.stack.record import ChildRecord, ChildState

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 10.0
# A child that was ready this long had started well: its death counts as the first. Short, because somebody who kills
# processes to see what happens should not be stopped from it by a growing pause.
STABLE_S = 2.0
# In a row, none of which became ready or stayed so; with the pauses above half a minute of trying.
MAX_RESTARTS = 10
# Of a child that is not needed and cannot be kept running.
WITHOUT_IT_PAUSE_S = 60.0
# Enough to get from any first pause to the longest one.
MOST_DOUBLINGS = 32
LOG_CHECK_INTERVAL_S = 5.0


class Supervisor:
    """`async with Supervisor(...) as supervisor: await supervisor.start(a, b); await supervisor.wait()`.

    Leaving the block stops everything, whatever the reason for leaving.
    """

    def __init__(
        self,
        *,
        logs: Path,
        record: Callable[[Sequence[ChildRecord]], Awaitable[None]],
        say: Callable[[str], None],
        first_pause_s: float = FIRST_PAUSE_S,
        max_restarts: int = MAX_RESTARTS,
    ) -> None:
        self._logs = logs
        self._record = record
        self._say = say
        self._first_pause_s = first_pause_s
        self._max_restarts = max_restarts
        self._kept: list[Kept] = []
        self._groups = 0
        self._stopping = False
        self._recording = asyncio.Lock()
        self._future: asyncio.Future[None] | None = None
        self._told = False
        self._unrecorded = False
        self._log_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._future = asyncio.get_running_loop().create_future()
        self._log_task = asyncio.create_task(self._bound_logs(), name="logs")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stop()
        except asyncio.CancelledError:
            for kept in self._kept:
                kept.kill()
            raise
        finally:
            if self._log_task is not None:
                self._log_task.cancel()
        if kind is None and not self._told:
            self._raise_failure()

    async def start(self, *children: Child) -> tuple[str, ...]:
        """Start a group concurrently, wait until all of it is ready, and give the names.

        Raises StackProblem when a child that is needed cannot be; another is not among the names then.
        """
        self._groups += 1
        group = [self._begin(child) for child in children]
        pending: set[asyncio.Future[Any]] = {asyncio.create_task(kept.was_tried.wait()) for kept in group}
        try:
            while pending:
                await asyncio.wait({*pending, self._failing}, return_when=asyncio.FIRST_COMPLETED)
                self._raise_failure()
                pending = {waiter for waiter in pending if not waiter.done()}
        finally:
            for waiter in pending:
                waiter.cancel()
        return tuple(kept.child.name for kept in group if kept.was_ready.is_set())

    async def wait(self) -> None:
        """Wait until a child is given up. Raises StackProblem then; otherwise it never ends by itself."""
        await asyncio.wait((self._failing,))
        self._raise_failure()

    def children(self) -> tuple[ChildRecord, ...]:
        """What is true of each child now, in the order of their starts."""
        return tuple(kept.recorded() for kept in self._kept)

    def _begin(self, child: Child) -> Kept:
        if any(kept.child.name == child.name for kept in self._kept):
            raise ValueError(f"a child named {child.name!r} is there already; names have to differ")
        kept = Kept(child=child, group=self._groups, log=self._logs / f"{child.name}.log")
        kept.task = asyncio.create_task(self._keep(kept), name=f"keep {child.name}")
        kept.task.add_done_callback(self._ended)
        self._kept.append(kept)
        return kept

    async def _keep(self, kept: Kept) -> None:
        """One life after the other, until it is stopped or given up."""
        name = kept.child.name
        deaths = 0
        refusals = 0

        async def change(state: ChildState) -> None:
            nonlocal refusals
            if state == "starting" and refusals:
                self._say(f"{name}: there is space again; it is started")
                refusals = 0
            await self._change(kept, state)

        while True:
            try:
                life = await kept.live(change)
            except NoSpace as problem:
                if not kept.was_tried.is_set():
                    raise
                if not refusals:
                    self._say(f"{name} waits for space on the disk and then goes on by itself. {problem}")
                refusals += 1
                await change("waiting")
                await asyncio.sleep(self._pause_s(refusals))
                continue
            if kept.asked:
                return
            if kept.child.after_exit is not None and await kept.child.after_exit(life.exit):
                continue
            deaths = 1 if life.ready_for_s >= STABLE_S else deaths + 1
            first = not kept.was_ready.is_set()
            hopeless = first or deaths > self._max_restarts
            if hopeless and kept.child.needed != "never" and (first or kept.child.needed == "always"):
                await change("failed")
                times = "" if first else f", {deaths} times in a row, and is not started again"
                raise StackProblem(f"{name} {life.problem}{times}.{kept.last_words()}")
            kept.restarts += 1
            pause_s = WITHOUT_IT_PAUSE_S if hopeless else self._pause_s(deaths)
            if hopeless:
                self._say(f"{name} {life.problem}; the rest goes on without it.{kept.last_words()}")
            self._say(f"{name} {life.problem}; starting it again in {pause_s:g} s (restart {kept.restarts})")
            kept.was_tried.set()
            await change("waiting")
            await asyncio.sleep(pause_s)

    def _pause_s(self, tries: int) -> float:
        # The exponent is bounded too: a disk may be full for days, and a float is not endless.
        return min(LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** min(tries - 1, MOST_DOUBLINGS))

    async def _stop(self) -> None:
        self._stopping = True
        for group in sorted({kept.group for kept in self._kept}, reverse=True):
            await asyncio.gather(*(self._stop_one(kept) for kept in self._kept if kept.group == group))

    async def _stop_one(self, kept: Kept) -> None:
        kept.asked = True
        if kept.running():
            await self._change(kept, "stopping")
            if not await kept.end():
                self._say(
                    f"{kept.child.name} did not stop within {kept.child.stop_timeout_s:g} s of "
                    f"{kept.child.stop_signal.name} and was killed"
                )
            code = kept.process.returncode if kept.process is not None else None
            if kept.child.after_exit is not None and code is not None:
                await kept.child.after_exit(Exit(code=code, was_ready=kept.was_ready.is_set(), asked=True))
        assert kept.task is not None, "a child is kept by a task from the beginning"
        kept.task.cancel()  # it may be preparing a start, or pausing before one
        await asyncio.wait((kept.task,))
        await self._change(kept, "stopped")

    @property
    def _failing(self) -> "asyncio.Future[None]":
        """Gets the exception of the first child that is given up."""
        assert self._future is not None, "a supervisor is used inside `async with`"
        return self._future

    def _raise_failure(self) -> None:
        if self._failing.done():
            self._told = True
            self._failing.result()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self._failing.done():
            return
        error = task.exception()
        if error is not None:
            self._failing.set_exception(error)
            self._failing.exception()  # start, wait or the end of the block raise it; asyncio need not complain too

    async def _change(self, kept: Kept, state: ChildState) -> None:
        kept.state = state
        try:
            await self._write_record()
        except StackProblem as problem:
            # A full disk must not keep the rest from being stopped, nor from coming back.
            passes = isinstance(problem, NoSpace) and kept.was_tried.is_set()
            if not (passes or self._stopping):
                raise
            if not self._unrecorded:
                self._say(str(problem))
            self._unrecorded = True

    async def _write_record(self) -> None:
        async with self._recording:
            await self._record(self.children())
            self._unrecorded = False

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_INTERVAL_S)
            if self._unrecorded:
                with suppress(StackProblem):  # it has been said
                    await self._write_record()
            for kept in self._kept:
                try:
                    await asyncio.to_thread(bound_log, kept.log)
                except OSError as error:
                    self._say(f"The log {kept.log} could not be kept bounded: {error}")
