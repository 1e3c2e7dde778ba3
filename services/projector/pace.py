"""Rests of the projector after a transaction, so that the next one has more records.

A small transaction costs nearly as much as a large one. A single event is projected at once; in a stream of events the
loop rests a few milliseconds, and longer under load, where CPU matters more than the delay. A loop that is behind does
not rest. Load is averaged over a second, not judged by one poll: a burst of a few runs is no load, and resting after
bursts was most of the lag at 100 runs/s. `make bench-projections` measures the lag.

Before: loop.py has applied a poll. After: loop.py sleeps.
"""

import math

REST = 4.0
"""Length of a rest, as a multiple of the transaction before it."""
REST_MAX_S = 0.008
"""Longest rest without load. Each transaction takes CPU from the runs on the same machine: with 12 ms a single run
takes a tenth less than with 5, and the lag's p99 at 100 runs/s is 7 ms more."""
ENTITY_REST_MAX_S = 0.02
"""The same for entities and channels, whose owners and waiting callers do not read the rows: with 8 ms, sets of memory
by 16 runs at once cost a tenth more."""
REST_MAX_BUSY_S = 0.1
"""Longest rest under load."""
LOAD_PER_S, BUSY_PER_S = 1_250, 2_500
"""Records per second from which rests become longer, and from which they are longest. A hundred runs of A3x2 a second
are 1,200.
"""
AVERAGING_S = 1.0
"""Time constant of the average: records this old weigh 1/e of new ones."""


class Pace:
    """The rests of one loop. Times are monotonic seconds."""

    def __init__(self, rest_max_s: float = REST_MAX_S) -> None:
        """`rest_max_s`: longest rest without load."""
        self._rest_max_s = rest_max_s
        self._weight = 0.0
        self._at_s = 0.0

    def rest_s(self, records: int, began_s: float, ended_s: float) -> float:
        """The rest after a transaction of `records` records that took from `began_s` to `ended_s`."""
        self._weight = self._weight * math.exp((self._at_s - ended_s) / AVERAGING_S) + records
        self._at_s = ended_s
        load = (self._weight / AVERAGING_S - LOAD_PER_S) / (BUSY_PER_S - LOAD_PER_S)
        longest_s = self._rest_max_s + min(1.0, max(0.0, load)) * (REST_MAX_BUSY_S - self._rest_max_s)
        return min(longest_s, REST * (ended_s - began_s))
