"""Waiting for something that another process or task does: the only place in the tests that sleeps."""

import asyncio
import inspect
from collections.abc import Callable

POLL_S = 0.005
WAIT_S = 30.0


async def until(check: Callable[[], object], *, within_s: float = WAIT_S) -> None:
    """Poll until `check` returns, or its awaitable gives, something true. Raises TimeoutError.

    For what has no event to wait for: the memory of another process, a file, a table.
    """
    async with asyncio.timeout(within_s):
        while True:
            result = check()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return
            await asyncio.sleep(POLL_S)
