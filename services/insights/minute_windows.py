"""Fold of run tallies into minutes: pure, so that it can be tested without Faust, a broker or a clock.

A tally has the totals of a few runs that ended in one minute, as their owner saw it. `TallyFilter` decides whether it
counts, all or nothing; `minute_of` gives its totals; `MinuteTotals.plus` adds them (associative and commutative, EMPTY
is the identity). Reading the same tallies again, in another order or twice, gives the same minutes, so a restart can
rebuild the windows from the topic. One exception: a stale tally that is read before the first one of the new owner is
counted, because it cannot be recognized as stale yet.

Tallies that do not count, each outcome with its own counter (`TallyOutcome`):
  stale      written by an owner that had lost its partition. A term IS the offset of the Claim it began with, so a
             tally is stale exactly when a known Claim has an offset between the tally's term and offset. Comparing
             terms alone would drop tallies that a former owner wrote in time and that are read later, as in every
             rebuild. The offset is that of the tally's last run: an owner reports only legal ends, so no tally spans
             a Claim.
  duplicate  the same tally (events partition, offset) was counted already
  late       its minute has left the history
  early      it ends in the future by more than clocks may differ; it would open a window that never closes
  overflow   more tallies in one minute than are remembered

Not chosen: a sketch (t-digest) for the durations. Fixed buckets add up exactly and their error is known.

Before: app.py reads and decodes. After: app.py adds the minutes to its table, report.py computes rates.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from loomlog.schemas.generated.stream_records import RunTally

MINUTE_MS = 60_000
CLOCK_SKEW_MS = 60_000
"""How far the clock of a writer may be ahead of ours."""
MAX_TALLIES_PER_MINUTE = 200_000
"""1,024 partitions with a tally per second have 61,440; remembering one costs 8 bytes."""
MAX_PARTITIONS = 1024
"""Events partitions with windows; the settings allow no more."""
MAX_TERMS = 64
"""Newest Claims remembered per partition; a record older than all of them left the history long ago."""
MAX_NAMES = 200
"""Agents, models or tools of one window; further ones are summed as OTHER. Bounds memory and metric labels."""
MAX_NAME_CHARACTERS = 128
"""The longest id a caller may choose (schemas/ids.py)."""
OTHER = "(other)"

DURATION_BOUNDS_MS: tuple[int, ...] = tuple(step * 10**power for power in range(6) for step in (10, 15, 20, 30, 50, 70))
"""Upper bounds of the duration buckets, 10 ms to 117 minutes; a last one holds what is longer. Neighbours differ by at
most 1.67, which bounds the error of a percentile."""

Name = tuple[str, ...]
"""Key of a row: (tenant, agent), (provider, model), (tool,), (status,) or (currency,)."""


class InvalidTally(ValueError):
    """A readable tally with an impossible value; the message names the field."""


class TallyOutcome(StrEnum):
    COUNTED = "counted"
    STALE = "stale"
    DUPLICATE = "duplicate"
    LATE = "late"
    EARLY = "early"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Rate:
    """A count, and the number of errors in it."""

    total: int = 0
    errors: int = 0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.total + other.total, self.errors + other.errors)

    @property
    def error_ratio(self) -> float:
        return self.errors / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations by bucket; the last one has those above the last bound."""

    counts: tuple[int, ...] = (0,) * (len(DURATION_BOUNDS_MS) + 1)

    @classmethod
    def of(cls, durations_ms: Iterable[int]) -> "Durations":
        counts = [0] * (len(DURATION_BOUNDS_MS) + 1)
        for took_ms in durations_ms:
            counts[bisect_left(DURATION_BOUNDS_MS, took_ms)] += 1
        return cls(tuple(counts))

    def __add__(self, other: "Durations") -> "Durations":
        return Durations(tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    def percentile_ms(self, share: float) -> float | None:
        """Duration that this share (0 to 1) does not exceed, interpolated in its bucket; None without any.

        A duration above the last bound counts as the last bound.
        """
        target = share * self.total
        below = 0
        for index, count in enumerate(self.counts):
            if count and below + count >= target:
                if index == len(DURATION_BOUNDS_MS):
                    break
                low = DURATION_BOUNDS_MS[index - 1] if index else 0
                return low + (DURATION_BOUNDS_MS[index] - low) * (target - below) / count
            below += count
        return float(DURATION_BOUNDS_MS[-1]) if self.counts[-1] else None


NO_DURATIONS = Durations()
Rates = Mapping[Name, Rate]
Sums = Mapping[Name, int]
Times = Mapping[Name, Durations]


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteTotals:
    """Totals of the runs that ended in a span of time."""

    runs: int = 0
    statuses: Sums = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: Sums = field(default_factory=dict)
    """By currency; amounts of different currencies are never added."""
    agents: Rates = field(default_factory=dict)
    """Runs and failed runs; a cancelled run is no error."""
    models: Rates = field(default_factory=dict)
    """Calls and failed calls."""
    tools: Rates = field(default_factory=dict)
    """Calls and calls with an error result."""
    durations: Durations = NO_DURATIONS
    """Durations of the runs."""
    model_times: Times = field(default_factory=dict)
    """Durations of model calls that were answered in that span, also of runs that went on; some may be left out."""

    def plus(self, other: "MinuteTotals") -> "MinuteTotals":
        """The sum of both. Exact, except that names beyond MAX_NAMES are summed as OTHER."""
        return MinuteTotals(
            runs=self.runs + other.runs,
            statuses=_merge_sums(self.statuses, other.statuses),
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_micros=_merge_sums(self.cost_micros, other.cost_micros),
            agents=_merge_sums(self.agents, other.agents),
            models=_merge_sums(self.models, other.models),
            tools=_merge_sums(self.tools, other.tools),
            durations=self.durations + other.durations,
            model_times=_merge_sums(self.model_times, other.model_times),
        )


EMPTY = MinuteTotals()


def minute_of(tally: RunTally) -> MinuteTotals:
    """Totals of one tally."""
    return MinuteTotals(
        runs=len(tally.durations_ms),
        statuses=_summed((_name(row.status), row.runs) for row in tally.statuses),
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        cost_micros=_summed((_name(row.currency), row.micros) for row in tally.costs),
        agents=_summed((_name(row.tenant, row.agent), Rate(row.runs, row.failed)) for row in tally.agents),
        models=_summed((_name(row.provider, row.model), Rate(row.calls, row.errors)) for row in tally.models),
        tools=_summed((_name(row.name), Rate(row.calls, row.errors)) for row in tally.tools),
        durations=Durations.of(tally.durations_ms),
        model_times=_summed(
            (_name(row.provider, row.model), Durations.of(row.durations_ms)) for row in tally.model_times
        ),
    )


def sum_rates(rates: Rates) -> Rate:
    """Total of all rows."""
    return sum(rates.values(), Rate())


def minute_start_ms(at_ms: int) -> int:
    """Start of the minute of a time."""
    return at_ms - at_ms % MINUTE_MS


class TallyFilter:
    """Decides which tallies count, in any order. Holds 8 bytes for each tally of the history."""

    __slots__ = ("_history_ms", "_newest_minute", "_seen", "_terms")

    def __init__(self, *, history_minutes: int) -> None:
        self._history_ms = history_minutes * MINUTE_MS
        self._newest_minute = 0
        self._seen: dict[int, dict[int, array[int]]] = {}
        self._terms: dict[int, list[int]] = {}

    def classify(self, tally: RunTally, now_ms: int) -> TallyOutcome:
        """Outcome of a tally; once COUNTED, the same one is a DUPLICATE. Raises InvalidTally."""
        _check(tally)
        self._advance(now_ms)
        terms = self._record_term(tally.partition, tally.term)
        following = bisect_right(terms, tally.term)
        if following < len(terms) and terms[following] < tally.offset:
            return TallyOutcome.STALE
        if tally.ended_at_ms > now_ms + CLOCK_SKEW_MS:
            return TallyOutcome.EARLY
        minute = minute_start_ms(tally.ended_at_ms)
        if minute < self._newest_minute - self._history_ms:
            return TallyOutcome.LATE
        partitions = self._seen.setdefault(minute, {})
        offsets = partitions.setdefault(tally.partition, array("q"))
        at = bisect_left(offsets, tally.offset)
        if at < len(offsets) and offsets[at] == tally.offset:
            return TallyOutcome.DUPLICATE
        if sum(map(len, partitions.values())) >= MAX_TALLIES_PER_MINUTE:
            return TallyOutcome.OVERFLOW
        offsets.insert(at, tally.offset)
        return TallyOutcome.COUNTED

    def _advance(self, now_ms: int) -> None:
        # A clock that is set back must not bring a forgotten minute back: its runs would count twice.
        minute = minute_start_ms(now_ms)
        if minute > self._newest_minute:
            self._newest_minute = minute
            for expired in [start for start in self._seen if start < minute - self._history_ms]:
                del self._seen[expired]

    def _record_term(self, partition: int, term: int) -> list[int]:
        terms = self._terms.setdefault(partition, [])
        at = bisect_left(terms, term)
        if at == len(terms) or terms[at] != term:
            insort(terms, term)
            del terms[:-MAX_TERMS]
        return terms


def _check(tally: RunTally) -> None:
    if not 0 <= tally.partition < MAX_PARTITIONS:
        raise InvalidTally(f"partition is {tally.partition}, expected 0 to {MAX_PARTITIONS - 1}")
    if not 0 <= tally.term < tally.offset:
        raise InvalidTally(
            f"term is {tally.term} and offset {tally.offset}; a term is the offset of the Claim before the record"
        )
    if tally.ended_at_ms < 0:
        raise InvalidTally(f"ended_at_ms is {tally.ended_at_ms}, expected milliseconds since 1970")
    if min(_numbers(tally)) < 0:
        raise InvalidTally("a count is negative: durations, runs, calls, errors, tokens and cost start at 0")
    runs = len(tally.durations_ms)
    by_status, by_agent = sum(row.runs for row in tally.statuses), sum(row.runs for row in tally.agents)
    if not runs == by_status == by_agent > 0:
        raise InvalidTally(
            f"it has {runs} durations, {by_status} runs by status and {by_agent} by agent; expected the same "
            "number, at least 1"
        )


def _numbers(tally: RunTally) -> Iterator[int]:
    yield tally.input_tokens
    yield tally.output_tokens
    yield from tally.durations_ms
    for status in tally.statuses:
        yield status.runs
    for agent in tally.agents:
        yield from (agent.runs, agent.failed)
    for model in tally.models:
        yield from (model.calls, model.errors)
    for tool in tally.tools:
        yield from (tool.calls, tool.errors)
    for cost in tally.costs:
        yield cost.micros
    for times in tally.model_times:
        yield from times.durations_ms


def _name(*parts: str) -> Name:
    return tuple(part[:MAX_NAME_CHARACTERS] for part in parts)


Addable = TypeVar("Addable", int, Rate, Durations)


def _merge_sums(left: Mapping[Name, Addable], right: Mapping[Name, Addable]) -> dict[Name, Addable]:
    return _summed(right.items(), dict(left))


def _summed(rows: Iterable[tuple[Name, Addable]], into: dict[Name, Addable] | None = None) -> dict[Name, Addable]:
    """Sums the rows by name; names beyond MAX_NAMES are OTHER."""
    sums: dict[Name, Addable] = {} if into is None else into
    for key, value in rows:
        name = key if key in sums or len(sums) < MAX_NAMES else (OTHER,) * len(key)
        sums[name] = sums[name] + value if name in sums else value
    return sums
