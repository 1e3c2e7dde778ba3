"""Pools of one connection each, lent to one request at a time.

The pools of httpcore look at each of their connections, sockets included, whenever a request begins or ends: with 1,000
calls under way that took half of a runtime's CPU. A pool of one has nothing to look through. A request gets the first
that is free, so the connections that were used last time are used again.

A task that is cancelled while httpcore closes a connection leaves a pool that counts as busy for ever: httpcore shields
itself with anyio's scopes, which do not stop `Task.cancel`. So a pool is either returned in a reusable state, its
response read to the end and closed without a cancellation, or discarded with its connection.

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
    """As many pools as concurrent requests. `create_pool` returns the pool of a number, counted from 0."""

    def __init__(self, create_pool: Callable[[int], Pool]) -> None:
        self._create_pool = create_pool
        self._pools: list[Pool] = []
        self._free: list[int] = []
        """Heap of the pools that carry no request."""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def in_use(self) -> int:
        """Number of pools lent."""
        return len(self._pools) - len(self._free)

    def acquire(self) -> tuple[int, Pool]:
        """Return a free pool, and the number to release it with."""
        if not self._free:
            self._pools.append(self._create_pool(len(self._pools)))
            return len(self._pools) - 1, self._pools[-1]
        number = heapq.heappop(self._free)
        return number, self._pools[number]

    def release(self, number: int, *, is_reusable: bool) -> None:
        """Return a pool. `is_reusable`: its response was read to the end and closed, without a
        cancellation meanwhile.
        """
        if not is_reusable:
            # In a task of its own: the caller may be cancelled again before it is closed.
            closing = asyncio.get_running_loop().create_task(self._pools[number].aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._log_close_error)
            self._pools[number] = self._create_pool(number)
        heapq.heappush(self._free, number)

    async def aclose(self) -> None:
        """Close all pools; requests under way fail."""
        for pool in self._pools:
            await pool.aclose()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _log_close_error(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        error = None if closing.cancelled() else closing.exception()
        if error is not None:
            log.debug("a connection that was given up did not close: %s: %s", type(error).__name__, error)
