"""A histogram at the cost of a bisection for each value.

Not chosen: prometheus_client's Histogram in the loop (a lock and a label lookup each time); a scrape converts this one.
"""

from bisect import bisect_left

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds: from one flush on a fast disk to a broker that is about to be given up."""
CALL_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds: from a file read to a long model turn."""
RECORDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)


class Histogram:
    """Counts of values by upper bound, and their sum. `counts` has one more than `bounds`, for values above all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def total(self) -> int:
        return sum(self.counts)
