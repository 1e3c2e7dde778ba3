"""How long a partition stood still after a strike, as a reader of the log saw it.

For an owner that was killed or stopped, only the partitions it owned count, and only what a later owner appended: that
is the take-over. For everything else all partitions count, and the next accepted event ends the pause.

A strike nothing followed (no event was due on that partition any more) gives no figure, and neither does a pause into
which another strike fell: nobody could say whose it is. How long until the first event after a take-over is a figure
only where one was due at once: a call was open that its owner took along.
Before: checker.  After: report.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from tests.chaos.evidence import Sighting, Strike
from tests.chaos.history import Accepted, Story

OWNERS = frozenset({"runtime", "zombie", "successor", "planned", "snapshots"})
"""Targets that are owners of partitions."""
KILLED_OWNERS = ("runtime", "snapshots")
"""Those by which take-overs are measured: one owner is killed while all is well, and nothing else is struck."""


def pauses(
    strikes: Iterable[Strike], sightings: Iterable[Sighting], histories: Mapping[int, Accepted]
) -> dict[str, tuple[float, ...]]:
    """Milliseconds from each strike to the next accepted event, by target, sorted."""
    return _measured(strikes, sightings, histories, going_on)


def claim_times(
    strikes: Iterable[Strike], sightings: Iterable[Sighting], histories: Mapping[int, Accepted]
) -> dict[str, tuple[float, ...]]:
    """Milliseconds from each strike at an owner to the next Claim of what it owned, by target, sorted."""
    measured = _measured(strikes, sightings, histories, claimed)
    return {target: values for target, values in measured.items() if target in OWNERS}


def take_overs(
    strikes: Iterable[Strike], sightings: Iterable[Sighting], histories: Mapping[int, Accepted], until: "Going"
) -> dict[str, tuple[float, ...]]:
    """Milliseconds from each kill of an owner until that, by who noticed: `standby` or `group`, sorted."""
    killed = [strike for strike in strikes if strike.target in KILLED_OWNERS]
    return _measured(strikes, sightings, histories, until, among=killed, name=_noticed_by)


Going = Callable[[Accepted, int, int], int | None]
"""The offset that ends a pause; of a history, the last offset known at the strike, and the term that was struck."""


def _by_target(strike: Strike, history: Accepted, struck_term: int) -> str:
    return strike.target


def _noticed_by(strike: Strike, history: Accepted, struck_term: int) -> str:
    reason = next((claim.reason for claim in history.claims if claim.offset > struck_term), "")
    return "standby" if reason == "standby" else "group"


def going_on(history: Accepted, known: int, struck_term: int) -> int | None:
    events = history.events
    first = bisect_right([event.offset for event in events], known)
    return next((event.offset for event in islice(events, first, None) if event.term > struck_term), None)


def going_on_with_what_was_open(history: Accepted, known: int, struck_term: int) -> int | None:
    """The same, where the next owner finds a call that was lost: it has to write that down, whatever else there is."""
    claim = claimed(history, known, struck_term)
    if claim is None or not _any_call_open(history, claim):
        return None
    return going_on(history, known, struck_term)


def _any_call_open(history: Accepted, before: int) -> bool:
    """Whether a run has a call under way after the events before that offset: of a model, or of a tool by its owner."""
    stories: dict[str, Story] = {}
    for event in history.events:
        if event.offset >= before:
            break
        stories.setdefault(event.run_id, Story(event.run_id)).follow(event)
    return any(not story.ended and (story.open_model or story.lost_calls) for story in stories.values())


def claimed(history: Accepted, known: int, struck_term: int) -> int | None:
    return next((claim.offset for claim in history.claims if claim.offset > struck_term), None)


def _measured(
    strikes: Iterable[Strike],
    sightings: Iterable[Sighting],
    histories: Mapping[int, Accepted],
    going: Going,
    *,
    among: Sequence[Strike] | None = None,
    name: Callable[[Strike, Accepted, int], str] = _by_target,
) -> dict[str, tuple[float, ...]]:
    """The pauses after the strikes, or after those `among` them, by what `name` makes of each."""
    seen: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        seen[sighting.partition].append(sighting)
    result: dict[str, list[float]] = defaultdict(list)
    everything = list(strikes)
    for strike in everything if among is None else among:
        for number, history in histories.items():
            measured = _pause_s(strike, seen[number], history, going)
            if measured is not None and _alone(strike, measured[0], everything):
                result[name(strike, history, measured[1])].append(measured[0] * 1000)
    return {kind: tuple(sorted(values)) for kind, values in result.items()}


def _alone(strike: Strike, pause_s: float, strikes: Iterable[Strike]) -> bool:
    """Whether no other strike was on during the pause."""
    end_s = strike.at_s + pause_s
    return not any(other is not strike and other.at_s < end_s and other.back_s > strike.at_s for other in strikes)


def _pause_s(strike: Strike, seen: Sequence[Sighting], history: Accepted, going: Going) -> tuple[float, int] | None:
    """How long one partition stood still, and the term that was struck; None when the strike did not concern it."""
    place = bisect_right([sighting.at_s for sighting in seen], strike.at_s)
    known = seen[place - 1].last if place else -1
    struck_term = -1
    if strike.target in OWNERS:
        claims = [claim for claim in history.claims if claim.offset <= known]
        if not claims or claims[-1].owner != strike.process:
            return None
        struck_term = claims[-1].offset
    offset = going(history, known, struck_term)
    if offset is None:
        return None
    # Sightings have gaps where nothing was accepted; the one that covers the record tells when it was seen.
    return next(((s.at_s - strike.at_s, struck_term) for s in seen if s.first <= offset <= s.last), None)
