"""Planned release of partitions: calls under way finish, and calls that were due and not started are recorded.

A planned stop loses no call: the next owner starts what our events record as not started. From the flusher's `draining`
or `leaving` on no call is started, so this ends; calls that take too long are recovered by the next owner as after a
death.

Before: services/stream/host.py (the process stops) and assignment.py (a partition moves). After: leadership.py records,
services/stream/flusher.py appends.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping

from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.inbox import CallsUnstarted
from loomlog.services.stream.ownership.owner import PartitionOwner

DRAIN_S = 10.0
"""Default time for calls under way before their partition is released."""
NOTE_TIMEOUT_S = 2.0
"""Time after the drain for recording the calls that were due and not started; one append of each partition."""
CHECK_EVERY_S = 0.1
"""Interval of the check whether calls have ended, if no flush happens."""


class Drain:
    """Waits for calls under way. The caller has set the flusher to start no more calls."""

    def __init__(self, owners: Mapping[int, PartitionOwner], flusher: Flusher) -> None:
        self._owners = owners
        self._flusher = flusher

    async def run(self, timeout_s: float, have_ended: Callable[[], bool], only: PartitionOwner | None = None) -> bool:
        """Wait until `have_ended` and everything is in the log, also the calls not started; False if not in time.

        `only`: of this partition. Takes at most NOTE_TIMEOUT_S longer than `timeout_s`.
        """
        end = time.monotonic() + timeout_s
        ended = await self._wait_until_settled(end, have_ended, only)

        def noted() -> bool:
            # Lookups and timers go on to the end, and calls they lead to are not started either.
            return not self._record_unstarted_calls(only)

        return await self._wait_until_settled(max(end, time.monotonic() + NOTE_TIMEOUT_S), noted, only) and ended

    async def _wait_until_settled(self, end: float, holds: Callable[[], bool], only: PartitionOwner | None) -> bool:
        """Wait until everything decided is in the log and the condition holds; False if not by `end` (monotonic)."""
        while time.monotonic() < end:
            owners = list(self._owners.values()) if only is None else [only]
            if holds() and all(owner.is_settled for owner in owners):
                return True
            self._flusher.drained.clear()
            try:
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._flusher.drained.wait()
            except TimeoutError:
                continue  # look again until the time is up
        return False

    def _record_unstarted_calls(self, only: PartitionOwner | None) -> bool:
        """Record the calls not started; whether there were any."""
        due: dict[int, dict[str, frozenset[Hashable]]] = {}
        # Taken away, so that a stop requested twice records them once.
        not_begun, self._flusher.not_begun = self._flusher.not_begun, []
        for owner, name, key in not_begun:
            if only is not None and owner is not only:
                self._flusher.not_begun.append((owner, name, key))
                continue
            if self._owners.get(owner.number) is not owner:
                continue  # lost: its next owner recovers the call
            calls = due.setdefault(owner.number, {})
            calls[name] = calls.get(name, frozenset()) | {key}
        for number, calls in due.items():
            self._owners[number].deliver(CallsUnstarted(calls))
        return bool(due)
