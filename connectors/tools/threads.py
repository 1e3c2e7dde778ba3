"""Where blocking work goes: a small pool of threads, and a way to tell it that nobody waits any more.

File systems have no asynchronous calls, so file tools work in threads. The pool is their own and not the event
loop's default one: that one also resolves names, and a few long searches must not stop DNS.

A thread cannot be killed. When a call is cancelled, work that has not begun never begins, and work that has begun
finds out through its Stop, which it asks before every step that changes something or costs time.

Before: file tools, WebFetch, Ledger. After: the operating system.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WORKERS = 8
"""Enough to hide a slow disk behind others' work; more would only fight for the interpreter."""

Result = TypeVar("Result")


class Stopped(Exception):
    """The work ended because nobody waits for its result."""


class Stop:
    """One call's word to its thread. Plain attribute writes are atomic, so it needs no lock."""

    __slots__ = ("_wanted",)

    def __init__(self) -> None:
        self._wanted = False

    def now(self) -> None:
        self._wanted = True

    def check(self) -> None:
        """Raises Stopped once the call was cancelled."""
        if self._wanted:
            raise Stopped


class Deadline:
    """A bound on time for work that can give a partial answer."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at


class Threads:
    """A bounded pool; threads begin when they are first needed and end with the process."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tool")

    async def run(self, work: Callable[[Stop], Result]) -> Result:
        """The work's result. When the caller is cancelled the work is told to stop and not waited for."""
        stop = Stop()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, stop)
        finally:
            stop.now()
