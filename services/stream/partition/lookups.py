"""What is only known after asking the outside, and the tasks that ask.

A desk answers at once when it can; otherwise it gives something to await, and that may be refused while a database is
away. Then it is asked anew, because what it would answer may have changed meanwhile, and it may answer at once now.

Tasks of a tenure end with it: what they find would be decided on a state that nobody holds any more.
Before: command_intake.py (commands) and local_effects.py need something from the desk. After: they go on with the
answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from loomlog.connectors.errors import ConnectorError

log = logging.getLogger(__name__)

LOOKUP_RETRY_S = 0.5
"""Pause before a look-up that the outside refused is tried again; what needs it keeps waiting."""

LookupResult = TypeVar("LookupResult")


class PendingLookups:
    """The tasks of one tenure, in the group of the host."""

    def __init__(self, group: asyncio.TaskGroup | None) -> None:
        assert group is not None, "partitions are held inside the host's task group"
        self._group = group
        self._under_way: set[asyncio.Task[None]] = set()
        self._ended = False

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it until it is done or the tenure ends."""
        task = self._group.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def lookup_with_retry(
        self,
        first: Awaitable[LookupResult],
        again: Callable[[], LookupResult | Awaitable[LookupResult]],
        *,
        waits: Callable[[], str],
    ) -> LookupResult:
        """The answer of `first`, or of asking `again` for as long as the outside refuses. Raises what a bug raises.

        `waits` names for the log what has to wait.
        """
        asked = first
        while True:
            try:
                return await asked
            except ConnectorError as error:
                log.warning("%s waits: %s", waits(), error)
                await asyncio.sleep(LOOKUP_RETRY_S)
            finally:
                if self._ended:
                    raise asyncio.CancelledError  # also when what was asked has swallowed that of `end`
            answer = again()
            if not isinstance(answer, Awaitable):
                return answer
            asked = answer

    def end(self) -> None:
        """Cancel them all."""
        self._ended = True
        for task in self._under_way:
            task.cancel()
