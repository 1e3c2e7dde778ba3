"""Work that several callers want at the same time is done once: all get what it gives, or what it raises.

Before: connectors/credentials, connectors/mcp, services/families. After: asyncio.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class SingleFlight(Generic[KeyT, ValueT]):
    """The work under way, by what it is for."""

    def __init__(self) -> None:
        self._tasks: dict[KeyT, asyncio.Task[ValueT]] = {}

    def __contains__(self, key: KeyT) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    async def do(self, key: KeyT, work: Callable[[], Awaitable[ValueT]]) -> ValueT:
        """Return what the work for a key gives; it begins unless it is under way. Raises what it raises."""
        return await asyncio.shield(self.start(key, work))

    def start(self, key: KeyT, work: Callable[[], Awaitable[ValueT]]) -> "asyncio.Task[ValueT]":
        """Begin the work for a key, unless it is under way, and do not wait for it."""
        if key not in self._tasks:
            # A task of its own: a caller that is cancelled does not end it for the others.
            task = asyncio.get_running_loop().create_task(_run(work))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return self._tasks[key]

    def cancel(self) -> "Sequence[asyncio.Task[ValueT]]":
        """Cancel all work under way; returns it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _forget(self, key: KeyT, done: "asyncio.Task[ValueT]") -> None:
        self._tasks.pop(key, None)
        if not done.cancelled():
            done.exception()  # it was raised to those who waited, if any did


async def _run(work: Callable[[], Awaitable[ValueT]]) -> ValueT:
    return await work()
