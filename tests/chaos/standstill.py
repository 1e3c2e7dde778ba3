"""Notices when the campaign itself stood still: a machine that was paused, or too busy to run anything.

Whatever hung meanwhile did not hang by its own fault, so such a time is noted as a fault like those we make, under the
name MACHINE: runs were not left alone during it, and no pause into which it fell is a figure.

Before: campaign.  After: checker.
"""

import asyncio
import time
from collections.abc import Callable

from tests.chaos.evidence import Strike

MACHINE = "machine stood still"
BEAT_S = 0.5
LONGEST_GAP_S = 5.0
"""Ten beats that did not come. The campaign's own work takes milliseconds."""


async def watch(found: list[Strike], *, clock_s: Callable[[], float] = time.monotonic) -> None:
    """Appends every standstill to `found` until cancelled."""
    last_s = clock_s()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = clock_s()
        if now_s - last_s > LONGEST_GAP_S:
            found.append(Strike(target=MACHINE, process="", at_s=last_s, back_s=now_s))
        last_s = now_s
