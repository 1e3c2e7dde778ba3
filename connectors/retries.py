"""Retries of a call to another system until it answers, however long that takes.

A cancellation, or a timeout around it, is its bound. The log says that something is away at the first, second, fourth,
eighth failure and so on, and that it is back.

Before: callers that can do nothing else until there is an answer. After: the other system.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from loomlog.connectors.errors import Transient

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after a failure."""
Answer = TypeVar("Answer")


async def until_answered(
    ask: Callable[[], Awaitable[Answer]],
    what: str,
    *,
    failures: tuple[type[Exception], ...] = (Transient,),
    retry_s: float | None = None,
) -> Answer:
    """Return what `ask` returns, once it raises none of `failures`. `what` names for the log what waits for it.

    `retry_s`: the pause after a failure; by default RETRY_S.
    """
    tries = 0
    while True:
        try:
            answer = await ask()
        except failures as error:
            tries += 1
            if not tries & (tries - 1):  # a power of two
                log.warning("%s is waiting, and tries again: %s", what, error)
        else:
            if tries:
                log.info("%s continues", what)
            return answer
        await asyncio.sleep(RETRY_S if retry_s is None else retry_s)
