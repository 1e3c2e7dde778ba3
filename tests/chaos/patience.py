"""How long runs were left alone, and which of them took too long all the same.

A run is open from the moment its sender was told (or its first event was seen) until its end was seen. It is left alone
from the later of that and the end of the last fault. A run that is left alone for longer than STUCK_S and has not
ended is stuck, whether it ended at some time or never: what hangs until the next fault shakes it loose is a fault too.

Before: checker.  After: nothing.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.evidence import Promise, Sighting, Strike
from tests.chaos.history import Accepted, Event, Violation

STUCK_S = 45.0
"""The slowest run takes fifteen seconds when nothing happens, and the slowest recovery (a session, a restart, the
longest back-off) about ten."""
LAST_EVENTS = frozenset({"RunCompleted", "RunFailed", "RunCancelled", "RunRefused"})


@dataclass(slots=True)
class Open:
    """One run's time. Monotonic seconds; `until_s` None: nobody saw its end."""

    since_s: float
    until_s: float | None = None


def left_alone_s(open_: Open, strikes: Sequence[Strike], now_s: float) -> float:
    """The longest time without a fault in which the run was open. Strikes in any order."""
    end = open_.until_s if open_.until_s is not None else now_s
    quiet_since, longest = open_.since_s, 0.0
    for strike in sorted(strikes, key=lambda one: one.at_s):
        if strike.at_s >= end:
            break
        longest = max(longest, strike.at_s - quiet_since)
        quiet_since = max(quiet_since, strike.back_s)
    return max(longest, end - quiet_since)


def stuck(
    strikes: Sequence[Strike],
    sightings: Iterable[Sighting],
    promises: Iterable[Promise],
    histories: Mapping[int, Accepted],
) -> Iterable[Violation]:
    """Runs that were left alone for too long before they ended."""
    runs, now_s = _times(sightings, promises, histories)
    for name, open_ in runs.items():
        alone_s = left_alone_s(open_, strikes, now_s)
        if alone_s > STUCK_S:
            end = "had no end" if open_.until_s is None else "ended only then"
            text = f"{name}: was left alone for {alone_s:.0f} s and {end}; the bound is {STUCK_S:g} s"
            yield Violation(kind="stuck", text=text)


def _times(
    sightings: Iterable[Sighting], promises: Iterable[Promise], histories: Mapping[int, Accepted]
) -> tuple[dict[str, Open], float]:
    """When each run was open, and the last moment anything was seen."""
    seen: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        seen[sighting.partition].append(sighting)
    now_s = max((sighting.at_s for result in seen.values() for sighting in result), default=0.0)
    runs: dict[str, Open] = {}
    asked: dict[tuple[int, int], str] = {}
    for number, history in histories.items():
        lasts = [sighting.last for sighting in seen[number]]
        for event in history.events:
            at_s = _seen_at(event, seen[number], lasts)
            if at_s is None:
                continue
            if event.seq == 1:
                runs.setdefault(event.run_id, Open(at_s))
                asked[number, event.cause_offset] = event.run_id
            if event.name in LAST_EVENTS and event.run_id in runs:
                runs[event.run_id].until_s = at_s
    for promise in promises:
        values = runs.get(promise.run_id or asked.get((promise.partition, promise.offset), ""))
        # A repeated order is promised when its run is long over.
        if values is not None and promise.at_s:
            values.since_s = min(values.since_s, promise.at_s)
    return runs, now_s


def _seen_at(event: Event, seen: Sequence[Sighting], lasts: Sequence[int]) -> float | None:
    """When a reader saw it; None when nobody was looking."""
    place = bisect_left(lasts, event.offset)
    return seen[place].at_s if place < len(seen) and seen[place].first <= event.offset else None
