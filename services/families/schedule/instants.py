"""Which instants of a schedule are due, and when: pure arithmetic over its times.

An instant is what the times name; it fires up to `jitter_ms` later, always by the same delay, which follows from the
schedule's name and the instant. Instants are decided in their order: one with a long delay holds up those behind it.

Before: decide.py, and previews. After: connectors/cron.py.
"""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from loomlog.connectors.cron import find_cron_problem, is_time_zone, parse_times
from loomlog.schemas.generated.values import ScheduleSpec
from loomlog.schemas.records import Value
from loomlog.services.families.schedule import limits

Range = tuple[int, int]
"""The first and the last of some instants, both with it."""


class DueInstants(Value, frozen=True, kw_only=True):
    """Instants that are due at a time."""

    first_ms: int
    latest: tuple[int, ...]
    """The last of them, ascending."""
    count: int
    is_at_least: bool
    """There are more than `count` says."""
    next_ms: int
    """The first that is not due; 0: none."""


def spec_problem(spec: ScheduleSpec) -> str:
    """Return what is wrong with when a schedule fires; empty when nothing is."""
    if spec.times and (problem := find_cron_problem(spec.times[: limits.TIMES_CHARACTERS_MAX + 1])):
        return f"times: {problem}"
    if len(spec.times) > limits.TIMES_CHARACTERS_MAX:
        return f"times: expected at most {limits.TIMES_CHARACTERS_MAX} characters"
    if spec.timezone and not is_time_zone(spec.timezone):
        return "timezone: expected a name such as Europe/Berlin"
    if spec.overlap not in ("skip", "queue_one", "cancel", "allow"):
        return "overlap: expected skip, queue_one, cancel or allow"
    if not 0 <= spec.jitter_ms <= limits.JITTER_MS_MAX:
        return f"jitter_ms: expected 0 to {limits.JITTER_MS_MAX}"
    if not 0 <= spec.catch_up_max <= limits.CATCH_UP_MAX:
        return f"catch_up_max: expected 0 to {limits.CATCH_UP_MAX}"
    return "" if spec.max_fires >= 0 else "max_fires: expected 0 or more"


@lru_cache(maxsize=50_000)
def _next(times: str, zone: str, anchor_ms: int, after_ms: int) -> int:
    # Thousands of schedules have the same times, and become due together.
    return parse_times(times, zone, anchor_ms).next(after_ms)


def next_instant(spec: ScheduleSpec, anchor_ms: int, after_ms: int, passed: Sequence[Range] = ()) -> int:
    """Return the first instant after a time, UTC milliseconds; 0: none. `anchor_ms`: where @every begins; `passed`,
    ascending: what is left out because it has fired before its time.
    """
    instant = _next(spec.times, spec.timezone, _anchor(spec, anchor_ms), after_ms)
    for first, last in passed:
        if first <= instant <= last:
            instant = _next(spec.times, spec.timezone, _anchor(spec, anchor_ms), last)
    return instant


def has_anchor(spec: ScheduleSpec) -> bool:
    """Return whether the instants depend on when the schedule was armed."""
    return spec.times.startswith("@every")


def _anchor(spec: ScheduleSpec, anchor_ms: int) -> int:
    """Return the anchor of @every; times of the calendar have none, so that equal ones are kept once."""
    return anchor_ms if has_anchor(spec) else 0


def delay_ms(spec: ScheduleSpec, aggregate: str, instant_ms: int) -> int:
    """Return by how much an instant is put off."""
    if not spec.jitter_ms or not instant_ms:
        return 0
    digest = sha256(f"{aggregate}\0{instant_ms}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % (spec.jitter_ms + 1)


def due_instants(
    spec: ScheduleSpec,
    aggregate: str,
    anchor_ms: int,
    first_ms: int,
    now_ms: int,
    keep: int,
    passed: Sequence[Range] = (),
) -> DueInstants | None:
    """Return the instants from `first_ms` on that are due, the last `keep` of them by name; None when none is."""
    if not first_ms or first_ms + delay_ms(spec, aggregate, first_ms) > now_ms:
        return None
    latest = deque([first_ms], maxlen=keep)
    count = 1
    next_ms = next_instant(spec, anchor_ms, first_ms, passed)
    if next_ms and next_ms + delay_ms(spec, aggregate, next_ms) <= now_ms:
        times = parse_times(spec.times, spec.timezone, _anchor(spec, anchor_ms))
        next_ms = 0
        for instant in times.after(first_ms):
            if _has_passed(instant, passed):
                continue
            if instant + delay_ms(spec, aggregate, instant) > now_ms:
                next_ms = instant
                break
            latest.append(instant)
            count += 1
            if count == limits.COUNTED_MAX:
                return _many(spec, anchor_ms, first_ms, max(instant, now_ms - spec.jitter_ms), keep, passed)
    return DueInstants(first_ms=first_ms, latest=tuple(latest), count=count, is_at_least=False, next_ms=next_ms)


def _has_passed(instant_ms: int, passed: Sequence[Range]) -> bool:
    return any(first <= instant_ms <= last for first, last in passed)


def _many(
    spec: ScheduleSpec, anchor_ms: int, first_ms: int, until_ms: int, keep: int, passed: Sequence[Range]
) -> DueInstants:
    times = parse_times(spec.times, spec.timezone, _anchor(spec, anchor_ms))
    for first, last in reversed(passed):
        if first <= until_ms <= last:
            until_ms = first - 1
    latest = [one for one in times.latest(first_ms - 1, until_ms, keep) if not _has_passed(one, passed)]
    return DueInstants(
        first_ms=first_ms,
        latest=tuple(latest),
        count=limits.COUNTED_MAX,
        is_at_least=True,
        next_ms=next_instant(spec, anchor_ms, latest[-1], passed),
    )
