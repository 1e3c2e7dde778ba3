"""How long the projector rests after a transaction, so that the next one takes what came meanwhile.

A small transaction costs nearly as much as a large one. A lone event is projected at once; in a stream of them the loop
rests a few milliseconds, and longer when so much comes that the processor is worth more than the delay. A loop that is
behind does not rest. Whether much comes is judged over a second and not by one poll: a burst of a few runs is no load,
and a rest that it brought was most of the lag at 100 runs/s. Figures of the lag come from `make bench-projections`.

Before: loop.py has applied a poll. After: loop.py sleeps.
"""

import math

REST = 4.0
"""Rests are so many times as long as the transaction before them,"""
REST_MAX_S = 0.008
"""at most so long (each transaction takes time from the runs on the same machine: with 12 ms a run that is alone takes
a tenth less than with 5, and the lag's p99 at 100 runs/s is 7 ms more),"""
REST_MAX_BUSY_S = 0.1
"""or so long when more records come in a second than"""
BUSY_PER_S = 2_500
AVERAGING_S = 1.0
"""What came so long ago weighs 1/e of what comes now."""


class Pace:
    """The rests of one loop. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._at_s = 0.0

    def rest_s(self, records: int, began_s: float, ended_s: float) -> float:
        """After a transaction of so many records that took from `began_s` to `ended_s`."""
        self._weight = self._weight * math.exp((self._at_s - ended_s) / AVERAGING_S) + records
        self._at_s = ended_s
        is_busy = self._weight > BUSY_PER_S * AVERAGING_S
        return min(REST_MAX_BUSY_S if is_busy else REST_MAX_S, REST * (ended_s - began_s))
