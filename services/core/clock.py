"""Whether a process may believe its own clock: it must agree with the stamps of the broker within a minute.

The broker's time is measured every few seconds. In between it is the last measurement and the progress of the monotonic
clock, so a clock that is set is noticed when it is read next, and not at the next measurement. Which of the two clocks
is wrong nothing here can tell; a process that differs decides nothing, and one that agrees with the broker goes on.

Times are UTC milliseconds, except those of the monotonic clock, which are seconds.

Before: services/runtime/clock.py measures. After: schemas/records.py.
"""

from loomlog.schemas.records import Value, replace

OFFSET_MAX_MS = 60_000
"""Most that a believed clock differs from the broker's. Computers that are synchronised differ by milliseconds, and
times of runs and schedules are minutes.
"""
ROUND_TRIP_MAX_S = 10.0
"""A measurement that took longer says less than the one before it."""


class ClockCheck(Value, frozen=True, kw_only=True):
    """What is known of a clock. Nothing was measured while `uncertainty_ms` is negative."""

    broker_ms: float = 0.0
    measured_s: float = 0.0
    """When it was `broker_ms` at the broker, by the monotonic clock."""
    uncertainty_ms: float = -1.0
    """Half of the round trip: by so much `measured_s` may be wrong."""
    believed_ms: int = 0
    """The clock when it was believed last; 0: never."""
    believed_s: float = 0.0

    @property
    def is_measured(self) -> bool:
        return self.uncertainty_ms >= 0

    def offset_ms(self, clock_ms: int, monotonic_s: float) -> float:
        """Return by how much a clock is ahead of the broker's; 0 before the first measurement."""
        if not self.is_measured:
            return 0.0
        return clock_ms - self.broker_ms - (monotonic_s - self.measured_s) * 1000

    def is_believed(self, clock_ms: int, monotonic_s: float) -> bool:
        """Return whether the clock agrees with the broker's."""
        if not self.is_measured:
            return False
        return abs(self.offset_ms(clock_ms, monotonic_s)) <= OFFSET_MAX_MS + self.uncertainty_ms

    def now_ms(self, clock_ms: int, monotonic_s: float) -> int:
        """Return what time to go on with: the clock's, or while it is not believed what it would be without the jump.

        The second is for the moments until a process has given up what it owns, and not the broker's time: it may be
        the broker's clock that has jumped.
        """
        if not self.believed_ms or self.is_believed(clock_ms, monotonic_s):
            return clock_ms
        return self.believed_ms + int((monotonic_s - self.believed_s) * 1000)


def measured(check: ClockCheck, broker_ms: int, sent_s: float, received_s: float, clock_ms: int) -> ClockCheck:
    """Return the check after a measurement: it was `broker_ms` at the broker between two readings of the monotonic
    clock, and it is `clock_ms` at the second of them.
    """
    if received_s - sent_s > ROUND_TRIP_MAX_S:
        return check
    after = replace(
        check,
        broker_ms=float(broker_ms),
        measured_s=(sent_s + received_s) / 2,
        uncertainty_ms=(received_s - sent_s) / 2 * 1000,
    )
    if not after.is_believed(clock_ms, received_s):
        return after
    return replace(after, believed_ms=clock_ms, believed_s=received_s)
