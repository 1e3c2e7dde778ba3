"""Supervision: named child processes, started together, kept running, stopped in reverse order.

A `Supervisor` starts groups of children. A group is started concurrently and awaited; groups are stopped in reverse
order. The first start of a child must succeed (a wrong setting should be a message, not a loop); later deaths lead to a
restart after a growing pause, and after MAX_RESTARTS in a row the supervisor gives up with the reason. A child that is
not needed ends nothing: it is retried every OPTIONAL_RETRY_S. A full disk ends nothing either: a child that died of it
is restarted once there is space, however long that takes. After every change the states are passed to `record`, so that
other terminals can find and stop everything.

Not chosen: systemd, supervisord, honcho. The stack has to work the same in a bare container and on a laptop, and its
special parts (readiness, actions before a start and after an exit) would have to be added to them anyway.

Before: local.  After: child, record, logfile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loomlog.services.cli.stack.child import ChildExit, ChildSpec, SupervisedChild
from loomlog.services.cli.stack.errors import DiskFull, StackError
from loomlog.services.cli.stack.logfile import rotate_log
from loomlog.services.cli.stack.record import ChildRecord, ChildState

INITIAL_BACKOFF_S = 0.05
MAX_BACKOFF_S = 10.0
# A child that was ready this long had started well: its death counts as the first. Short, because a user who kills
# processes to see what happens should not be stopped by a growing pause.
STABLE_AFTER_S = 2.0
# Consecutive restarts without a stable start; with the pauses above, half a minute of trying.
MAX_RESTARTS = 10
# Pause between restarts of an optional child that cannot be kept running.
OPTIONAL_RETRY_S = 60.0
# Enough to get from any first pause to the longest one.
MAX_DOUBLINGS = 32
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
        report: Callable[[str], None],
        initial_backoff_s: float = INITIAL_BACKOFF_S,
        max_restarts: int = MAX_RESTARTS,
    ) -> None:
        self._logs = logs
        self._record = record
        self._report = report
        self._initial_backoff_s = initial_backoff_s
        self._max_restarts = max_restarts
        self._supervised: list[SupervisedChild] = []
        self._groups = 0
        self._stopping = False
        self._record_lock = asyncio.Lock()
        self._failure_future: asyncio.Future[None] | None = None
        self._failure_raised = False
        self._record_pending = False
        self._log_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._failure_future = asyncio.get_running_loop().create_future()
        self._log_task = asyncio.create_task(self._rotate_logs(), name="logs")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stop_all()
        except asyncio.CancelledError:
            for kept in self._supervised:
                kept.kill()
            raise
        finally:
            if self._log_task is not None:
                self._log_task.cancel()
        if exc_type is None and not self._failure_raised:
            self._raise_failure()

    async def start(self, *children: ChildSpec) -> tuple[str, ...]:
        """Start a group concurrently, wait until all of it is ready, and return the names.

        Raises StackError when a needed child cannot start; an optional one that cannot is missing from the names.
        """
        self._groups += 1
        group = [self._add_child(child) for child in children]
        pending: set[asyncio.Future[Any]] = {asyncio.create_task(kept.first_attempt_done.wait()) for kept in group}
        try:
            while pending:
                await asyncio.wait({*pending, self._failure}, return_when=asyncio.FIRST_COMPLETED)
                self._raise_failure()
                pending = {waiter for waiter in pending if not waiter.done()}
        finally:
            for waiter in pending:
                waiter.cancel()
        return tuple(kept.spec.name for kept in group if kept.became_ready.is_set())

    async def wait(self) -> None:
        """Wait until a child is given up, and raise its StackError; never returns otherwise."""
        await asyncio.wait((self._failure,))
        self._raise_failure()

    def child_records(self) -> tuple[ChildRecord, ...]:
        """Return the current record of each child, in start order."""
        return tuple(kept.to_record() for kept in self._supervised)

    def _add_child(self, spec: ChildSpec) -> SupervisedChild:
        if any(kept.spec.name == spec.name for kept in self._supervised):
            raise ValueError(f"a child named {spec.name!r} is there already; names have to differ")
        kept = SupervisedChild(spec=spec, group=self._groups, log=self._logs / f"{spec.name}.log")
        kept.task = asyncio.create_task(self._supervise(kept), name=f"keep {spec.name}")
        kept.task.add_done_callback(self._on_task_done)
        self._supervised.append(kept)
        return kept

    async def _supervise(self, child: SupervisedChild) -> None:
        """Start it again and again, until it is stopped or given up."""
        name = child.spec.name
        deaths = 0
        refusals = 0

        async def change(state: ChildState) -> None:
            nonlocal refusals
            if state == "starting" and refusals:
                self._report(f"{name}: there is space again; it is started")
                refusals = 0
            await self._set_state(child, state)

        while True:
            try:
                life = await child.run_once(change)
            except DiskFull as problem:
                if not child.first_attempt_done.is_set():
                    raise
                if not refusals:
                    self._report(f"{name} waits for space on the disk and then goes on by itself. {problem}")
                refusals += 1
                await change("waiting")
                await asyncio.sleep(self._backoff_s(refusals))
                continue
            if child.stop_requested:
                return
            if child.spec.after_exit is not None and await child.spec.after_exit(life.exit):
                continue
            deaths = 1 if life.ready_duration_s >= STABLE_AFTER_S else deaths + 1
            first = not child.became_ready.is_set()
            hopeless = first or deaths > self._max_restarts
            if hopeless and child.spec.required != "never" and (first or child.spec.required == "always"):
                await change("failed")
                times = "" if first else f", {deaths} times in a row, and is not started again"
                raise StackError(f"{name} {life.problem}{times}.{child.log_tail()}")
            child.restarts += 1
            pause_s = OPTIONAL_RETRY_S if hopeless else self._backoff_s(deaths)
            if hopeless:
                self._report(f"{name} {life.problem}; the rest goes on without it.{child.log_tail()}")
            self._report(f"{name} {life.problem}; starting it again in {pause_s:g} s (restart {child.restarts})")
            child.first_attempt_done.set()
            await change("waiting")
            await asyncio.sleep(pause_s)

    def _backoff_s(self, attempts: int) -> float:
        # The exponent is bounded too: a disk may be full for days, and a float overflows.
        return min(MAX_BACKOFF_S, self._initial_backoff_s * 2.0 ** min(attempts - 1, MAX_DOUBLINGS))

    async def _stop_all(self) -> None:
        self._stopping = True
        for group in sorted({kept.group for kept in self._supervised}, reverse=True):
            await asyncio.gather(*(self._stop_child(kept) for kept in self._supervised if kept.group == group))

    async def _stop_child(self, child: SupervisedChild) -> None:
        child.stop_requested = True
        if child.is_running():
            await self._set_state(child, "stopping")
            if not await child.stop():
                self._report(
                    f"{child.spec.name} did not stop within {child.spec.stop_timeout_s:g} s of "
                    f"{child.spec.stop_signal.name} and was killed"
                )
            code = child.process.returncode if child.process is not None else None
            if child.spec.after_exit is not None and code is not None:
                await child.spec.after_exit(
                    ChildExit(code=code, was_ready=child.became_ready.is_set(), stop_requested=True)
                )
        assert child.task is not None, "a child is kept by a task from the beginning"
        child.task.cancel()  # it may be preparing a start, or pausing before one
        await asyncio.wait((child.task,))
        await self._set_state(child, "stopped")

    @property
    def _failure(self) -> "asyncio.Future[None]":
        """A future with the exception of the first child that is given up."""
        assert self._failure_future is not None, "a supervisor is used inside `async with`"
        return self._failure_future

    def _raise_failure(self) -> None:
        if self._failure.done():
            self._failure_raised = True
            self._failure.result()

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self._failure.done():
            return
        error = task.exception()
        if error is not None:
            self._failure.set_exception(error)
            self._failure.exception()  # start, wait or the end of the block raise it; asyncio need not log it too

    async def _set_state(self, child: SupervisedChild, state: ChildState) -> None:
        child.state = state
        try:
            await self._write_record()
        except StackError as problem:
            # A full disk must prevent neither stopping nor restarting the rest.
            passes = isinstance(problem, DiskFull) and child.first_attempt_done.is_set()
            if not (passes or self._stopping):
                raise
            if not self._record_pending:
                self._report(str(problem))
            self._record_pending = True

    async def _write_record(self) -> None:
        async with self._record_lock:
            await self._record(self.child_records())
            self._record_pending = False

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_INTERVAL_S)
            if self._record_pending:
                with suppress(StackError):  # already reported
                    await self._write_record()
            for kept in self._supervised:
                try:
                    await asyncio.to_thread(rotate_log, kept.log)
                except OSError as error:
                    self._report(f"The log {kept.log} could not be kept bounded: {error}")
