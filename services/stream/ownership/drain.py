"""Before partitions are given up on purpose: what is under way finishes, what was due and not begun is written down.

A stop that was planned costs no call: whoever owns the partition next begins what our events say was not begun, instead
of wondering whether it was. From the flusher's `draining` or `leaving` on no call begins, so this comes to an end; when
calls take longer than they may, the next owner takes them up as after a death.

Before: services/stream/host.py (the process stops) and assignment.py (a partition moves). After: leadership.py writes
down, services/stream/flusher.py appends.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping

from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.ownership.inbox import CallsUnstarted
from loomlog.services.stream.ownership.owner import PartitionOwner

DRAIN_S = 10.0
"""How long calls under way may take before their partition is given up."""
NOTE_TIMEOUT_S = 2.0
"""After the drain, for writing down which calls were due and not begun; one append of each partition."""
CHECK_EVERY_S = 0.1
"""How often to look whether calls have ended, when no flush says so."""


class Drain:
    """Waits for what is under way. Whoever asks has told the flusher before that nothing begins any more."""

    def __init__(self, owners: Mapping[int, PartitionOwner], flusher: Flusher) -> None:
        self._owners = owners
        self._flusher = flusher

    async def run(self, timeout_s: float, have_ended: Callable[[], bool], only: PartitionOwner | None = None) -> bool:
        """The calls `have_ended` and everything is in the log, also which calls were not begun; False when not in time.

        `only`: of this partition. Takes at most NOTE_S longer than `timeout_s`.
        """
        end = time.monotonic() + timeout_s
        ended = await self._wait_until_settled(end, have_ended, only)

        def noted() -> bool:
            # Look-ups and alarms go on to the end, and what they lead to is not begun either.
            return not self._record_unstarted_calls(only)

        return await self._wait_until_settled(max(end, time.monotonic() + NOTE_TIMEOUT_S), noted, only) and ended

    async def _wait_until_settled(self, end: float, holds: Callable[[], bool], only: PartitionOwner | None) -> bool:
        """Everything decided is in the log and it holds; False when not so by `end` (monotonic)."""
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
        """Whether there was any."""
        due: dict[int, dict[str, frozenset[Hashable]]] = {}
        # Taken away, so that whoever asks for a stop twice has it written down once.
        not_begun, self._flusher.not_begun = self._flusher.not_begun, []
        for number, name, key in not_begun:
            if only is not None and number != only.number:
                self._flusher.not_begun.append((number, name, key))
                continue
            calls = due.setdefault(number, {})
            calls[name] = calls.get(name, frozenset()) | {key}
        for number, calls in due.items():
            if number in self._owners:
                self._owners[number].deliver(CallsUnstarted(calls))
        return bool(due)
