"""One door for all partitions of a process: starts wait here for a place, each at most its time.

A start that has to wait is a command that is not decided yet: it is in the log, so nothing is lost with this process,
and whoever owns the partition next reads the commands again and lets them wait in their old order. What is at work is
not kept anywhere: the desk tells it from the events it sees and, after a take-over, from the runs it finds.

Before: desk.py with a StartRun. After: core/admission.py says who goes in; desk.py decides it then.
"""

import asyncio
import time
from collections import Counter

from loomlog.connectors.configuration import Loaded
from loomlog.connectors.configuration.bounds import bounds_of
from loomlog.services.core.admission import PROVIDER_FULL, Admission, Bounds, Place, TurnedAway
from loomlog.services.stream.histogram import CALL_SECONDS, Distribution


class Door:
    """`wait_s` is how long a start waits for a place, `provider_wait_s` when its provider is full."""

    def __init__(self, bounds: Bounds, *, wait_s: float, provider_wait_s: float) -> None:
        self.admission = Admission(bounds)
        self.asks_for_providers = bool(bounds.providers)
        """Whether the provider of a run makes a difference."""
        self.waited_s = Distribution(CALL_SECONDS)
        """Of starts that had to wait and were let in."""
        self.turned_away: Counter[str] = Counter()
        """By code."""
        self._wait_s = wait_s
        self._provider_wait_s = provider_wait_s
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def at_work(self, run_id: str, place: Place) -> None:
        """Something of the run is due."""
        self.admission.enter(run_id, place)

    def rests(self, run_id: str) -> None:
        """Nothing of it is due, for now or for ever."""
        if self.admission.leave(run_id):
            self._let_in()

    async def admitted(self, run_id: str, place: Place) -> TurnedAway | None:
        """Until the run may begin; then it is inside, and leaves by `rests`. Or why it may not."""
        began = time.monotonic()
        why = await self._let_in_or_not(run_id, place)
        if why is None:
            self.waited_s.observe(time.monotonic() - began)
        else:
            self.turned_away[why.code] += 1
        return why

    async def _let_in_or_not(self, run_id: str, place: Place) -> TurnedAway | None:
        turned_away = self.admission.queue(run_id, place)
        if turned_away is not None:
            return turned_away
        is_full = self.admission.why(place).code == PROVIDER_FULL
        entered = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        self._let_in()
        try:
            async with asyncio.timeout(self._provider_wait_s if is_full else self._wait_s):
                await entered
        except TimeoutError:
            if entered.done() and not entered.cancelled():
                return None  # let in at the last moment
            why = self.admission.why(place)
            self.admission.give_up(run_id)
            return why
        except asyncio.CancelledError:
            # Its partition is somebody else's now.
            self.admission.give_up(run_id)
            self.rests(run_id)
            raise
        finally:
            self._waiting.pop(run_id, None)
        return None

    def _let_in(self) -> None:
        if not self._waiting:
            return
        while run_id := self.admission.next():
            entered = self._waiting.get(run_id)
            if entered is not None and not entered.done():
                entered.set_result(None)


def door_of(loaded: Loaded) -> Door:
    """How many runs are at work in this process."""
    found = bounds_of(loaded.configuration, loaded.settings)
    providers = loaded.configuration.providers
    return Door(
        Bounds(
            runs=found.max_concurrent_runs,
            queue=found.max_queue_depth,
            per_user=found.max_concurrent_runs_per_user,
            providers={name: said.max_concurrent for name, said in providers.items() if said.max_concurrent},
            provider_queue=found.provider_queue_depth,
        ),
        wait_s=found.queue_timeout_ms / 1000,
        provider_wait_s=found.provider_queue_timeout_ms / 1000,
    )
