"""State of a consolidation target: how far its scope is consolidated, by which run now, and what is pending.

The payloads of pending entries are rows (items.py). Of an entry the state keeps that it is open, as a number; entries
are acknowledged in about the order in which they were banked, so the open ones are a few ranges.

Before: decide.py, operations.py. After: the schemas.
"""

from bisect import bisect_right
from collections.abc import Iterator
from hashlib import sha256
from typing import assert_never

from loomlog.schemas.generated.consolidation_events import (
    ChatSettled,
    ConsolidationRequested,
    PendingAcked,
    PendingBanked,
    TargetAdvanced,
    TargetDropped,
    TargetLeased,
    TargetReleased,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.consolidation import limits
from loomlog.services.families.memory.author import scope_of_aggregate

VERSION = 1
FAMILY_NAME = "consolidation"
PENDING_PREFIX = "mp_"
NUMBER_DIGITS, HASH_DIGITS = 10, 16

ConsolidationEvent = (
    TargetLeased
    | TargetAdvanced
    | TargetReleased
    | TargetDropped
    | ChatSettled
    | ConsolidationRequested
    | PendingBanked
    | PendingAcked
)


class Target(Value, frozen=True, kw_only=True, omit_defaults=True):
    """State of a target. Times are UTC milliseconds; 0: never."""

    tenant: str = ""
    scope: str = ""
    scope_id: str = ""
    watermark_at_ms: int = 0
    """When the newest chat that is in memory was completed."""
    watermark_session_id: str = ""
    owner: str = ""
    """Run that has the lease, until `expires_at_ms`; it may have expired."""
    expires_at_ms: int = 0
    leased_at_ms: int = 0
    """When this owner took it first."""
    last_number: int = 0
    """Number of the newest pending entry."""
    open_ranges: tuple[tuple[int, int], ...] = ()
    """First and last numbers of the pending entries, ascending and apart."""
    pending: int = 0
    settled_at_ms: int = 0
    """When a chat settled that no pass has looked for."""
    starts: int = 0
    """Runs of the consolidator that were requested."""
    attempts: int = 0
    """Runs that were requested since something moved."""
    start_at_ms: int = 0
    """When the next one is to be requested, if there is work then and no lease."""
    dropped_at_ms: int = 0
    """When its user was erased."""

    @property
    def has_work(self) -> bool:
        """Whether a pass would have something to do."""
        return self.pending > 0 or self.settled_at_ms > 0

    def is_open(self, number: int) -> bool:
        """Whether the entry with the number is pending."""
        index = bisect_right(self.open_ranges, (number, self.last_number)) - 1
        return index >= 0 and self.open_ranges[index][0] <= number <= self.open_ranges[index][1]


def initial(aggregate: str) -> Target:
    """Return the state of a target without events, by its full id."""
    tenant, _, name = aggregate.partition(":")[2].partition("/")
    scope = scope_of_aggregate(tenant, name)
    return Target(tenant=tenant, scope=scope.name, scope_id=scope.id)


def open_numbers(target: Target) -> Iterator[int]:
    """Yield the numbers of the pending entries, ascending."""
    for first, last in target.open_ranges:
        yield from range(first, last + 1)


def pending_id(target: Target, number: int) -> str:
    """Return the id of the pending entry with a number: of this target alone, in the order of the numbers."""
    aggregate = aggregate_id(FAMILY_NAME, target.tenant, f"{target.scope}/{target.scope_id}")
    digest = sha256(f"{aggregate}\0{number}".encode(errors="surrogatepass")).hexdigest()
    return f"{PENDING_PREFIX}{number:0{NUMBER_DIGITS}x}{digest[:HASH_DIGITS]}"


def number_of(target: Target, entry_id: str) -> int:
    """Return the number of the pending entry with an id; 0 for an id that is not of this target."""
    try:
        number = int(entry_id[len(PENDING_PREFIX) : -HASH_DIGITS], 16)
    except ValueError:
        return 0
    return number if 0 < number <= target.last_number and pending_id(target, number) == entry_id else 0


def start_delay_ms(attempts: int) -> int:
    """Return the time to the next start after so many that moved nothing."""
    return limits.START_DELAY_MS << min(attempts, limits.STARTS_MAX)


def next_timer_ms(target: Target) -> int:
    """Return when the next run of the consolidator is requested; 0: not."""
    if not target.has_work or target.attempts >= limits.STARTS_MAX:
        return 0
    return max(target.start_at_ms, target.expires_at_ms)


def evolve(target: Target, event: ConsolidationEvent, at_ms: int) -> Target:
    """Return the target after an event."""
    match event:
        case TargetLeased(is_acquired=False):
            return target
        case TargetLeased(owner=owner, expires_at_ms=expires_at_ms):
            leased_at_ms = target.leased_at_ms if owner == target.owner else at_ms
            return replace(target, owner=owner, expires_at_ms=expires_at_ms, leased_at_ms=leased_at_ms)
        case TargetAdvanced():
            return replace(
                target,
                watermark_at_ms=event.watermark_at_ms,
                watermark_session_id=event.watermark_session_id,
                attempts=0,
            )
        case TargetReleased(has_more=has_more):
            is_settled_since = target.settled_at_ms > target.leased_at_ms
            return replace(
                target,
                owner="",
                expires_at_ms=0,
                leased_at_ms=0,
                settled_at_ms=target.settled_at_ms if is_settled_since else at_ms if has_more else 0,
                start_at_ms=at_ms + start_delay_ms(target.attempts),
            )
        case TargetDropped():
            return Target(
                tenant=target.tenant,
                scope=target.scope,
                scope_id=target.scope_id,
                watermark_at_ms=target.watermark_at_ms,
                watermark_session_id=target.watermark_session_id,
                last_number=target.last_number,
                starts=target.starts,
                dropped_at_ms=at_ms,
            )
        case ChatSettled():
            return replace(_woken(target, at_ms), settled_at_ms=at_ms)
        case ConsolidationRequested(attempt=attempt):
            return replace(
                target, starts=target.starts + 1, attempts=attempt, start_at_ms=at_ms + start_delay_ms(attempt)
            )
        case PendingBanked(number=number, pending=pending):
            ranges = target.open_ranges
            first = ranges[-1][0] if ranges and ranges[-1][1] == number - 1 else number
            kept = ranges[:-1] if first != number else ranges
            return replace(
                _woken(target, at_ms), last_number=number, open_ranges=(*kept, (first, number)), pending=pending
            )
        case PendingAcked(numbers=numbers, pending=pending):
            return replace(target, open_ranges=_without(target.open_ranges, set(numbers)), pending=pending, attempts=0)
        case _:
            assert_never(event)


def _woken(target: Target, at_ms: int) -> Target:
    """Return the target with a start ahead of it, also when there were too many without progress."""
    if next_timer_ms(target):
        return target
    attempts = min(target.attempts, limits.STARTS_MAX - 1)
    return replace(target, attempts=attempts, start_at_ms=at_ms + start_delay_ms(attempts))


def _without(ranges: tuple[tuple[int, int], ...], numbers: set[int]) -> tuple[tuple[int, int], ...]:
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        for number in sorted(one for one in numbers if first <= one <= last):
            if first < number:
                left.append((first, number - 1))
            first = number + 1
        if first <= last:
            left.append((first, last))
    return tuple(left)
