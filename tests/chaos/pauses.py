"""How long a partition stood still after a strike, as a reader of the log saw it.

For an owner that was killed or stopped, only the partitions it owned count, and only what a later owner appended: that
is the take-over. For everything else all partitions count, and the next accepted event ends the pause.

A strike nothing followed (no event was due on that partition any more) gives no figure.
Before: checker.  After: report.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.chaos.evidence import Sighting, Strike
from tests.chaos.history import Accepted

OWNERS = frozenset({"runtime", "zombie", "successor", "planned"})
"""Targets that are owners of partitions."""


def pauses(
    strikes: Iterable[Strike], sightings: Iterable[Sighting], histories: Mapping[int, Accepted]
) -> dict[str, tuple[float, ...]]:
    """Milliseconds by target, sorted."""
    seen: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        seen[sighting.partition].append(sighting)
    found: dict[str, list[float]] = defaultdict(list)
    for strike in strikes:
        for number, history in histories.items():
            pause_s = _pause_s(strike, seen[number], history)
            if pause_s is not None:
                found[strike.target].append(pause_s * 1000)
    return {target: tuple(sorted(values)) for target, values in found.items()}


def _pause_s(strike: Strike, seen: Sequence[Sighting], history: Accepted) -> float | None:
    """How long one partition stood still; None when the strike did not concern it."""
    place = bisect_right([sighting.at_s for sighting in seen], strike.at_s)
    known = seen[place - 1].last if place else -1
    after_term = -1
    if strike.target in OWNERS:
        claims = [claim for claim in history.claims if claim.offset <= known]
        if not claims or claims[-1].owner != strike.process:
            return None
        after_term = claims[-1].offset
    going_on = next((event for event in history.events if event.offset > known and event.term > after_term), None)
    if going_on is None:
        return None
    # Sightings have gaps where nothing was accepted; the one that covers the event tells when it was seen.
    return next((s.at_s - strike.at_s for s in seen if s.first <= going_on.offset <= s.last), None)
