"""Sessions over what may go away: one after the other until a stop, with pauses that double after failures.

    async def session(stop): connect, follow until the stop; raise when what it needs is away

Before: the loops of projector and auditor. After: their sessions.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from loomlog.connectors.errors import Transient

FIRST_S = 0.2
MAX_S = 5.0
"""Pauses after failures: the first, which counts again once there was progress, and the longest."""
LOG_EVERY_S = 30.0
"""Interval of logging the same failure again."""


def _let_pass(failure: Exception) -> None:
    """Do nothing else about a failure."""


async def run_sessions(
    session: Callable[[asyncio.Event], Awaitable[None]],
    stop: asyncio.Event,
    log: logging.Logger,
    *,
    progress: Callable[[], int],
    failures: tuple[type[Exception], ...] = (Transient,),
    on_failure: Callable[[Any], float | None] = _let_pass,
    first_s: float | None = None,
    max_s: float | None = None,
    says: str = "%s; retrying",
) -> None:
    """Run sessions until `stop`. Raises what they raise that is none of `failures`.

    `progress`: a counter of what the sessions have done. `on_failure` may return the shortest pause, in seconds.
    `first_s` None: FIRST_S; `max_s` None: MAX_S. `says`: format of the line about a failure.
    """
    first_s, max_s = first_s or FIRST_S, max_s or MAX_S
    pause_s, logged, logged_at = first_s, "", -LOG_EVERY_S
    while not stop.is_set():
        before = progress()
        try:
            await session(stop)
            continue
        except failures as failure:
            least_s = on_failure(failure) or 0.0
            text, now = str(failure), time.monotonic()
            if text != logged or now - logged_at >= LOG_EVERY_S:
                logged, logged_at = text, now
                log.warning(says, text)
        pause_s = first_s if progress() > before else min(pause_s * 2, max_s)
        await wait_for_stop(stop, max(pause_s, least_s))


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for a stop at most so long; return whether it has come."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
