"""Pools of one connection each, lent to one request at a time.

The pools of httpcore look at each of their connections, sockets included, whenever a request begins or ends: with 1,000
calls under way that took half of a runtime's CPU. A pool of one has nothing to look through. A request gets the first
that is free, so the connections that were used last time are used again.

Who is cancelled while httpcore takes leave of a connection leaves a pool that believes for ever that it is at work: it
shields itself with anyio's scopes, which stop no `VerificationTask.cancel`. So a pool comes back sound, its answer read
to the end and closed in peace, or it is given up with its connection.

Before: models/connections.py and signed_callbacks.py. After: httpcore.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

log = logging.getLogger(__name__)


class Closable(Protocol):
    def aclose(self) -> Coroutine[Any, Any, None]: ...


Pool = TypeVar("Pool", bound=Closable)


class ConnectionPools(Generic[Pool]):
    """As many pools as requests at once. `make` gives the pool of a number, counted from 0."""

    def __init__(self, create_pool: Callable[[int], Pool]) -> None:
        self._create_pool = create_pool
        self._pools: list[Pool] = []
        self._free: list[int] = []
        """A heap of the pools that carry no request."""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def in_use(self) -> int:
        """How many are lent."""
        return len(self._pools) - len(self._free)

    def acquire(self) -> tuple[int, Pool]:
        """A pool nobody uses, and the number under which to give it back."""
        if not self._free:
            self._pools.append(self._create_pool(len(self._pools)))
            return len(self._pools) - 1, self._pools[-1]
        number = heapq.heappop(self._free)
        return number, self._pools[number]

    def release(self, number: int, *, is_reusable: bool) -> None:
        """`is_sound`: its answer was read to the end and closed, and nobody was cancelled meanwhile."""
        if not is_reusable:
            # By a task of its own: who gives it back may be cancelled again before it is closed.
            closing = asyncio.get_running_loop().create_task(self._pools[number].aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._log_close_error)
            self._pools[number] = self._create_pool(number)
        heapq.heappush(self._free, number)

    async def aclose(self) -> None:
        """Closes all; requests under way fail."""
        for pool in self._pools:
            await pool.aclose()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _log_close_error(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        error = None if closing.cancelled() else closing.exception()
        if error is not None:
            log.debug("a connection that was given up did not close: %s: %s", type(error).__name__, error)
