"""Small thread pool for blocking work, with a token that cancels the work when its caller is gone.

File systems have no asynchronous calls, so file tools work in threads. The pool is their own and not the event loop's
default one: that one also resolves names, and a few long searches must not stop DNS.

A thread cannot be killed. When a call is cancelled, work that has not begun never begins, and work that has begun finds
out through its CancellationToken, which it checks before every step that changes something or costs time.

Before: file tools, WebFetch, Ledger. After: the operating system.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WORKERS = 8
"""Threads of the pool: enough to hide a slow disk behind other work; more would only compete for the interpreter."""

Result = TypeVar("Result")


class WorkCancelled(Exception):
    """Raised in work whose caller no longer waits for the result."""


class CancellationToken:
    """Cancellation flag from a call to its thread. Plain attribute writes are atomic, so it needs no lock."""

    __slots__ = ("_is_cancelled",)

    def __init__(self) -> None:
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def raise_if_cancelled(self) -> None:
        """Raise WorkCancelled once the call was cancelled."""
        if self._is_cancelled:
            raise WorkCancelled


class Deadline:
    """A time limit for work that can return a partial answer."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def is_expired(self) -> bool:
        return time.monotonic() >= self._at


class ThreadPool:
    """A bounded pool; threads start on first use and end with the process."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tool")

    async def run(self, work: Callable[[CancellationToken], Result]) -> Result:
        """Return the work's result. When the caller is cancelled, the work is cancelled too and not awaited."""
        stop = CancellationToken()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work, stop)
        finally:
            stop.cancel()
