"""Clock of this process, compared with the broker's. The core has none: it receives times in commands.

A process whose clock differs by more than a minute decides nothing: it is no member of the group that assigns
partitions (connectors/kafka/group.py), so it owns none, and another one with a right clock takes over. That is the one
gate; below it nothing asks whether the clock is believed. One that starts with a wrong clock does nothing before it is
right (main.py). What is decided until the partitions are given up has the time that the clock would have without the
jump.

Not chosen: going on with the broker's time (then all processes follow one clock that may be the wrong one); an end of
the process (its calls would be made again).

Before: resources.py opens it, process.py passes `now_ms` to every component that needs the time. After:
services/core/clock.py, the operating system; no other module of this process reads the time of an event from there.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from loomlog.connectors.errors import ConnectorError
from loomlog.services.core.clock import OFFSET_MAX_MS, ClockCheck, measured

log = logging.getLogger("loomlog.runtime")

MEASURE_EVERY_S = 5.0
"""Interval of measurements. One is an append of 68 bytes: 0.5 ms of CPU here and 1.5 ms at the broker (measured)."""
LOOK_EVERY_S = 0.5
"""How often is looked whether the clock was set; then it is measured at once, because the clock of a machine that was
suspended is right.
"""
BELIEVED, DIFFERS, UNKNOWN = "believed", "differs", "unknown"


def clock_ms() -> int:
    """Return the current UTC time in milliseconds, as the operating system has it."""
    return time.time_ns() // 1_000_000


class CheckedClock:
    """The time of this process, and whether it is believed. `read_broker_time` appends a record and raises
    ConnectorError.
    """

    def __init__(
        self,
        read_broker_time: Callable[[], Awaitable[int]],
        *,
        read_clock_ms: Callable[[], int] = clock_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_broker_time = read_broker_time
        self._read_clock_ms = read_clock_ms
        self._monotonic_s = monotonic_s
        self._check = ClockCheck()
        self._measured_s = 0.0
        """Time of the last attempt, monotonic."""
        self._failure = ""
        self._became_believed = asyncio.Event()
        self._state = BELIEVED
        """What was said of it last; nothing is said of a clock that is right from the start."""
        self.is_believed = False
        """Whether the process may own partitions: as of the last look that a measurement followed."""

    @property
    def offset_s(self) -> float:
        """By how much this clock is ahead of the broker's now; 0 as long as it was not measured."""
        return self._check.offset_ms(self._read_clock_ms(), self._monotonic_s()) / 1000

    @property
    def problem(self) -> str:
        """Why the process owns nothing; empty while the clock is believed."""
        if self.is_believed:
            return ""
        if not self._check.is_measured:
            return f"the clock of this process could not be compared with the broker's: {self._failure or 'not yet'}"
        offset_s = self.offset_s
        direction = "ahead of" if offset_s > 0 else "behind"
        return (
            f"the clock of this process is {abs(offset_s):,.0f} s {direction} the broker's, more than "
            f"{OFFSET_MAX_MS // 1000} s: nothing is decided here until one of the two is set right"
        )

    def now_ms(self) -> int:
        """Return the time to go on with, in UTC milliseconds."""
        return self._check.now_ms(self._read_clock_ms(), self._monotonic_s())

    async def run(self) -> None:
        """Measure every MEASURE_EVERY_S, and at once when the clock was set; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = self._monotonic_s()
            was_set = self._check.is_believed(self._read_clock_ms(), now_s) != self.is_believed
            if was_set or now_s - self._measured_s >= MEASURE_EVERY_S:
                await self.measure()

    async def wait_until_believed(self) -> None:
        """Return once the clock is believed for the first time, while `run` measures."""
        await self._became_believed.wait()

    async def measure(self) -> None:
        """Measure, and say so when the answer has changed. Without an answer the last measurement holds."""
        sent_s = self._measured_s = self._monotonic_s()
        try:
            broker_ms = await self._read_broker_time()
        except ConnectorError as error:
            self._failure = str(error)
        else:
            self._check = measured(self._check, broker_ms, sent_s, self._monotonic_s(), self._read_clock_ms())
        self._look()

    def _look(self) -> None:
        self.is_believed = self._check.is_believed(self._read_clock_ms(), self._monotonic_s())
        if self.is_believed:
            self._became_believed.set()
        state = BELIEVED if self.is_believed else DIFFERS if self._check.is_measured else UNKNOWN
        if state == self._state:
            return
        self._state = state
        if state == BELIEVED:
            log.warning("the clock of this process agrees with the broker's again: it is %+.1f s off", self.offset_s)
        else:
            log.error("%s", self.problem)
