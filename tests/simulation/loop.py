"""An event loop with virtual time, on which several simulated processes live.

Each process has a ready queue of its own; which process runs next is drawn from the seed. The queue is first in first
out like that of the loop the process would have, or, in an `unordered` loop, begins anywhere: what asyncio does not
promise must not be relied on. When nobody has anything to do, the clock jumps to the next timer. There is no I/O:
whatever comes from outside is a timer.

A process that is frozen does not run: for a while it is a paused one, for ever a crashed one. That may happen between
any two of its callbacks, so at every await, by a fuse that counts them.

Contexts are not entered: nothing that is simulated uses context variables, and it would cost a tenth of the time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch

CLOSING_ROUNDS = 20
"""Rounds of cancelling at the end; a task may catch one, or wait for others that are cancelled after it."""


class Process:
    """A simulated process: what it has to run, and whether it may."""

    __slots__ = ("frozen", "fuse", "is_runnable", "name", "on_fuse", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Handle] = deque()
        self.frozen = False
        self.is_runnable = False
        """It is in the loop's list of those that have something to do and may."""
        self.fuse = 0
        """Callbacks until `on_fuse` is called; 0 = it is not lit."""
        self.on_fuse: Callable[[], None] = lambda: None


class Handle:
    """A callback to come."""

    __slots__ = ("args", "callback", "is_cancelled", "process", "when")

    def __init__(self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...], when: float) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.when = when
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module. `current` is the process whose code runs; what that code starts is its own."""

    running: ClassVar["VirtualLoop | None"] = None
    """The one that runs now, for who asks for the time without a loop at hand."""

    def __init__(self, random: Random, *, unordered: bool = False) -> None:
        self.now = 0.0
        """Virtual seconds since the beginning."""
        self.outside = Process("outside")
        """Broker, group and whatever else is no process under test; never frozen."""
        self.current = self.outside
        self.processes: list[Process] = []
        self.complaints: list[dict[str, Any]] = []
        """What asyncio would have logged: exceptions nobody asked for."""
        self._draw = random.random
        self._unordered = unordered
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopped = False
        self._closed = False

    # --- processes ----------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """A new process."""
        process = Process(name)
        self.processes.append(process)
        return process

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of that process."""
        before, self.current = self.current, process
        try:
            return self.create_task(coroutine)
        finally:
            self.current = before

    def freeze(self, process: Process) -> None:
        """It runs no more until `thaw`; what becomes ready meanwhile waits."""
        if not process.frozen:
            process.frozen = True
            self._rest(process)

    def thaw(self, process: Process) -> None:
        if process.frozen:
            process.frozen = False
            if process.ready:
                process.is_runnable = True
                self._runnable.append(process)

    # --- what asyncio asks of a loop ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        process = self.current
        handle = Handle(process, callback, args, self.now)
        process.ready.append(handle)  # as _make_ready: this is asked for most often
        if not process.is_runnable and not process.frozen:
            process.is_runnable = True
            self._runnable.append(process)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_for(self.current, delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_for(self.current, when - self.now, callback, *args)

    def call_for(self, process: Process, delay_s: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """A callback that the process will run after the delay."""
        when = self.now + delay_s
        handle = Handle(process, callback, args, when)
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "task")
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.complaints.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def stop(self) -> None:
        """`run` returns before the next callback."""
        self._stopped = True

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, until_s: float) -> None:
        """Until `stop`, until that time, or until nothing is left to wait for."""
        self._stopped = False
        self._enter()
        try:
            while not self._stopped:
                if self._runnable:
                    self._run_one()
                elif not self._advance(until_s):
                    return
        finally:
            self._leave()

    def close(self) -> None:
        """Ends every task, also those of frozen processes, so that nothing is left for the garbage collector to end."""
        self._closed = True
        self._enter()
        try:
            for process in self.processes:
                process.fuse = 0
                self.thaw(process)
            for _ in range(CLOSING_ROUNDS):
                self._tasks = [task for task in self._tasks if not task.done()]
                if not self._tasks:
                    return
                for task in self._tasks:
                    task.cancel()
                self._stopped = False
                while self._runnable:
                    self._run_one()
        finally:
            self._leave()
        raise AssertionError(f"these tasks do not end: {self._tasks}")

    def _enter(self) -> None:
        asyncio._set_running_loop(self)
        VirtualLoop.running = self

    def _leave(self) -> None:
        asyncio._set_running_loop(None)
        VirtualLoop.running = None

    def _run_one(self) -> None:
        """One turn of one process: what is ready now."""
        runnable = self._runnable
        at = int(self._draw() * len(runnable)) if len(runnable) > 1 else 0
        process = self.current = runnable[at]
        ready = process.ready
        unordered = self._unordered
        for _ in range(len(ready)):
            if process.fuse:
                process.fuse -= 1
                if not process.fuse:
                    process.on_fuse()
            if process.frozen or self._stopped:
                break
            if unordered and len(ready) > 1:
                ready.rotate(int(self._draw() * len(ready)))
            handle = ready.popleft()
            if not handle.is_cancelled:
                handle.callback(*handle.args)
        self.current = self.outside
        if not ready:
            self._rest(process)

    def _advance(self, until_s: float) -> bool:
        """The clock jumps to the next timer; False when there is none before the end."""
        timers = self._timers
        while timers:
            when, _, handle = timers[0]
            if handle.is_cancelled:
                heappop(timers)
                continue
            if when > until_s:
                self.now = until_s
                return False
            if when > self.now:
                self.now = when
            heappop(timers)
            process = handle.process
            if not process.frozen and not process.fuse and not (timers and timers[0][0] <= when):
                # The only one that is due, and nobody else can run: at once, without a place in any queue.
                self.current = process
                handle.callback(*handle.args)
                self.current = self.outside
                return True
            self._make_ready(handle)
            while timers and timers[0][0] <= when:
                self._make_ready(heappop(timers)[2])
            return True
        return False

    def _make_ready(self, handle: Handle) -> None:
        process = handle.process
        process.ready.append(handle)
        if not process.is_runnable and not process.frozen:
            process.is_runnable = True
            self._runnable.append(process)

    def _rest(self, process: Process) -> None:
        if process.is_runnable:
            process.is_runnable = False
            self._runnable.remove(process)


class OrderedTasks(dict[asyncio.Task[Any], None]):
    """The tasks of a TaskGroup in the order of their beginning.

    A group keeps a set, whose order is that of addresses in memory; it cancels its tasks in that order, and a seed
    would not replay in another process.
    """

    def add(self, task: asyncio.Task[Any]) -> None:
        self[task] = None

    def discard(self, task: asyncio.Task[Any]) -> None:
        self.pop(task, None)


@contextmanager
def ordered_groups() -> Iterator[None]:
    """While it lasts, every TaskGroup that is made keeps its tasks in order."""
    begin = asyncio.TaskGroup.__init__

    def begin_in_order(group: Any) -> None:
        begin(group)
        group._tasks = OrderedTasks()

    with patch.object(asyncio.TaskGroup, "__init__", begin_in_order):
        yield


class Nap:
    """asyncio.sleep on the running VirtualLoop, and what the sleeping task waits for: its timer wakes the task itself.

    A future would take two callbacks, one that gives it its result and one that wakes who waits for it; half of all
    callbacks are sleeps that end. It has what asyncio.Task asks of a future, and one task waits for it.
    """

    __slots__ = ("_asyncio_future_blocking", "_delay_s", "_handle", "_loop", "_result", "_wake", "_was_cancelled")

    def __init__(self, delay: float, result: Any = None) -> None:
        loop = VirtualLoop.running
        assert loop is not None
        self._loop = loop
        self._delay_s = delay
        self._result = result
        self._was_cancelled = False

    def __await__(self) -> Generator[Any, None, Any]:
        if self._delay_s <= 0:
            yield None  # lets the others run once
        else:
            self._asyncio_future_blocking = True
            yield self
        return self._result

    def add_done_callback(self, wake: Callable[[Any], None], *, context: Any = None) -> None:
        loop = self._loop
        self._wake = wake
        self._handle = loop.call_for(loop.current, self._delay_s, wake, self)

    def cancel(self, msg: Any = None) -> bool:
        if self._was_cancelled:
            return False
        self._was_cancelled = self._handle.is_cancelled = True
        self._loop.call_soon(self._wake, self)
        return True

    def result(self) -> None:
        if self._was_cancelled:
            raise asyncio.CancelledError


class Answer:
    """What one task waits for until somebody tells it: a future that wakes the task at once.

    `tell` and `fail` are for callbacks of the process that waits, not for its tasks. The first one counts.
    """

    __slots__ = ("_asyncio_future_blocking", "_error", "_is_done", "_loop", "_value", "_wake")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._wake: Callable[[Any], None] | None = None

    def tell(self, value: Any) -> None:
        if not self._is_done:
            self._is_done, self._value = True, value
            if self._wake is not None:
                self._wake(self)

    def fail(self, error: BaseException) -> None:
        if not self._is_done:
            self._error = error
            self.tell(None)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def add_done_callback(self, wake: Callable[[Any], None], *, context: Any = None) -> None:
        self._wake = wake

    def cancel(self, msg: Any = None) -> bool:
        if self._is_done:
            return False
        self._is_done, self._error = True, asyncio.CancelledError()
        assert self._wake is not None
        self._loop.call_soon(self._wake, self)
        return True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value
