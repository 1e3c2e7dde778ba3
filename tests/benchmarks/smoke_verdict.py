"""From pairs of slices to a verdict: has ours become a third slower against the floor than it was?

Pure. A pair is ours and the floor measured within a second of each other; the ratio of a row is the median of its
pairs, so that a moment in which the machine did something else costs one pair and not the verdict.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FALLEN = 2 / 3
"""Of the baseline's ratio; below it the gate fails."""
SLOWEST = 0.5
"""Most that a slow Python is made allowance for; on a machine slower than that nothing can be said, so it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Runs a second of ours and of the floor, one after the other; `row` is PATH:IN_FLIGHT."""

    row: str
    ours: float
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ours divided by the floor: the median of the pairs and where the middle half of them lies."""

    ratio: float
    low: float
    high: float
    pairs: int
    ours: float
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A row that is below FALLEN of its baseline, or was not measured (ratio 0)."""

    row: str
    ratio: float
    baseline: float

    def __str__(self) -> str:
        return (
            f"{self.row}: ours is {self.ratio:.3f} of the raw Kafka floor and was {self.baseline:.3f} in the baseline: "
            f"{self.ratio / self.baseline:.2f} of that, at least {FALLEN:.2f} is asked for"
        )


def ratios(pairs: Iterable[Pair]) -> dict[str, Ratio]:
    """Each row's ratio, in the order the rows first came. A pair in which nothing ended on one side counts as 0."""
    by_row: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_row.setdefault(pair.row, []).append(pair)
    return {row: ratio_of(taken) for row, taken in by_row.items()}


def ratio_of(pairs: Sequence[Pair]) -> Ratio:
    """The ratio of one row's pairs."""
    each = sorted(pair.ours / pair.floor if pair.floor else 0.0 for pair in pairs)
    return Ratio(
        ratio=statistics.median(each),
        low=each[len(each) // 4],
        high=each[(3 * len(each)) // 4] if len(each) > 1 else each[0],
        pairs=len(each),
        ours=statistics.median(pair.ours for pair in pairs),
        floor=statistics.median(pair.floor for pair in pairs),
    )


def expected(baseline: Mapping[str, float], python_ms_then: float, python_ms_now: float) -> dict[str, float]:
    """The baseline as it would be here and now.

    With many in flight the floor waits for the broker and ours computes in Python: where the same loop takes longer
    than it took for the baseline, the same program has a lower ratio. A higher one is never asked for. One in flight
    waits for the disk on both sides, so its ratio stays.
    """
    share = max(SLOWEST, min(1.0, python_ms_then / python_ms_now))
    return {row: ratio if row.endswith(":1") else ratio * share for row, ratio in baseline.items()}


def falls(measured: Mapping[str, Ratio], baseline: Mapping[str, float]) -> list[Fall]:
    """The rows of the baseline that have fallen too far. A row of the baseline that was not measured has fallen."""
    result = []
    for row, before in baseline.items():
        now = measured[row].ratio if row in measured else 0.0
        if now < FALLEN * before:
            result.append(Fall(row=row, ratio=now, baseline=before))
    return result


def better(first: Mapping[str, Ratio], second: Mapping[str, Ratio]) -> dict[str, Ratio]:
    """The better of two measurements of each row: a disturbance seldom hits a row twice, a regression does."""
    both = {**first, **second}
    return {
        row: max((taken[row] for taken in (first, second) if row in taken), key=lambda one: one.ratio) for row in both
    }
