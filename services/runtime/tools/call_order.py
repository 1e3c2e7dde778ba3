"""The order of calls of one turn whose effects depend on each other: each waits until the one before it has returned.

Before: tool_calls.py, for tools with `is_ordered`. After: the tool.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallOrder:
    """Lets calls in, one after the other for each turn, in the order in which they ask."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, run_id: str, turn: int) -> AsyncIterator[None]:
        """Wait for the calls of the turn that asked before."""
        key = (run_id, turn)
        before = self._last.get(key)
        returned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[key] = returned
        try:
            if before is not None:
                await asyncio.shield(before)
            yield
        finally:
            if before is not None and not before.done():
                # Cancelled while waiting: the calls after it still wait for the one before.
                before.add_done_callback(lambda _: returned.set_result(None))
            else:
                returned.set_result(None)
            if self._last.get(key) is returned:
                del self._last[key]
