"""Work of a partition that may have to wait for the outside: done at once when it can be, in a task otherwise.

A command handler's methods are coroutines. Most commands are prepared from memory: their coroutine ends at its first
step and costs no task switch. One that needs the index, a key or an earlier run awaits `continue_in_task` first. A
lookup that the outside refuses is repeated from the beginning, because its premises may have changed.

Tasks end with the leadership: their result would be decided on a state that this process no longer owns.
Before: command_intake.py (commands) and local_effects.py prepare through the command handler. After: decisions.py.
Not chosen: a task for each command (one more turn of the event loop, 20 us of 800 a run), asyncio's eager tasks (Python
3.12).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from loomlog.connectors.errors import ConnectorError

log = logging.getLogger(__name__)

LOOKUP_RETRY_S = 0.5
"""Seconds before a refused lookup is repeated; the command waits meanwhile."""

LookupResult = TypeVar("LookupResult")


async def continue_in_task() -> None:
    """Leave the caller's turn of the event loop. Must be awaited before the first thing that may wait."""
    await asyncio.sleep(0)


class PendingLookups:
    """The tasks of one leadership, in the task group of the host."""

    def __init__(self, group: asyncio.TaskGroup | None) -> None:
        assert group is not None, "partitions are held inside the host's task group"
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task until it is done or the leadership ends."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin_eagerly(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work` now, up to `continue_in_task`; the rest in a task. True when it has ended.

        Raises RuntimeError for work that waits without that: a timeout it has set would hit the caller's task.
        """
        try:
            waits_for = work.send(None)
        except StopIteration:
            return True
        if waits_for is not None:
            work.close()
            raise RuntimeError(f"{work!r} waits for {waits_for!r} before continue_in_task()")
        self.begin(work)
        return False

    async def lookup_with_retry(
        self, lookup: Callable[[], Awaitable[LookupResult]], *, waits: Callable[[], str]
    ) -> LookupResult:
        """The result of `lookup`, repeated for as long as the outside refuses it. Raises what a bug raises.

        `waits` names for the log what has to wait.
        """
        while True:
            try:
                return await lookup()
            except ConnectorError as error:
                log.warning("%s waits: %s", waits(), error)
            finally:
                if self._ended:
                    raise asyncio.CancelledError  # also when the lookup has swallowed the cancellation by `end`
            await continue_in_task()
            await asyncio.sleep(LOOKUP_RETRY_S)

    def end(self) -> None:
        """Cancel all tasks."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
