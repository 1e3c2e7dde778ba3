"""State of a schedule: what it fires and when, the runs that work, and how the last one ended.

`last_ms`, the last instant that was decided, never goes back, and the next one is after it. So an instant fires once,
whatever dies and however the clock is set. One exception: a clock that was ahead has decided instants that are still to
come. The schedule then begins again from now (`is_beyond_rule`), and what fired before its time is in `passed`.

Of instants that wait the state has a list with a bound; of fires that are over only the last (items.py has the others).

Before: decide.py. After: the schemas.
"""

from typing import assert_never

from loomlog.schemas.generated.schedule_events import (
    FireSettled,
    InstantsSkipped,
    ScheduleArmed,
    ScheduleDisarmed,
    ScheduleFired,
    SchedulePaused,
    ScheduleResumed,
)
from loomlog.schemas.generated.values import ScheduledRun, ScheduleSpec
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.instants import Range, delay_ms, has_anchor, next_instant

VERSION = 2
FAMILY_NAME = "schedule"
SPENT = "max_fires"
"""Reason of a schedule that has fired as often as it may."""

ScheduleEvent = (
    ScheduleArmed | ScheduleDisarmed | ScheduleFired | FireSettled | InstantsSkipped | SchedulePaused | ScheduleResumed
)


class Fire(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A fire whose run works."""

    number: int
    run_id: str
    instant_ms: int
    fired_ms: int
    late_ms: int = 0
    is_manual: bool = False
    arms: int = 0
    """Which arming it belongs to (Schedule.arms)."""


class Schedule(Value, frozen=True, kw_only=True, omit_defaults=True):
    """State of a schedule. Times are UTC milliseconds; 0: never, or none."""

    aggregate: str = ""
    """Full id."""
    def_id: str = ""
    """Version of the definition that is armed, or was at last."""
    revision: int = 0
    """Number of events of its definition that its sender had read."""
    arms: int = 0
    """How often it was armed."""
    is_armed: bool = False
    is_spent: bool = False
    spec: ScheduleSpec | None = None
    run: ScheduledRun | None = None
    armed_ms: int = 0
    """When this version was armed: where the intervals of @every begin."""
    last_ms: int = 0
    """The last instant that was decided."""
    leap_ms: int = 0
    """The last instant that was decided before many were left out at once."""
    fired_from_ms: int = 0
    """The first instant that fired since then; 0: none. So what a clock ahead has fired is from here to `last_ms`."""
    passed: tuple[Range, ...] = ()
    """Instants that fired before their time, ascending: they do not fire again."""
    next_ms: int = 0
    paused_until_ms: int = 0
    number: int = 0
    """Fires so far, of all versions."""
    fires: int = 0
    """Fires of this version that count towards max_fires, with those whose runs work."""
    refusals: int = 0
    """Starts that were refused in a row."""
    running: tuple[Fire, ...] = ()
    queued: tuple[int, ...] = ()
    """Instants that fire one after another when the run that works has ended."""
    last_run_ms: int = 0
    last_run_id: str = ""
    last_status: str = ""
    last_error: str = ""

    @property
    def tenant(self) -> str:
        return self.aggregate.partition(":")[2].partition("/")[0]

    @property
    def name(self) -> str:
        return self.aggregate.partition(":")[2].partition("/")[2]

    @property
    def fires_left(self) -> int:
        """How often it may fire still; many when there is no limit."""
        limit = self.spec.max_fires if self.spec is not None else 0
        return max(0, limit - self.fires) if limit else 1 << 31


def initial(aggregate: str) -> Schedule:
    """Return the state of a schedule without events, by its full id."""
    return Schedule(aggregate=aggregate)


def due_ms(schedule: Schedule) -> int:
    """Return when the next instant fires, with its delay; 0: never."""
    if not schedule.is_armed or schedule.spec is None or not schedule.next_ms:
        return 0
    return schedule.next_ms + delay_ms(schedule.spec, schedule.aggregate, schedule.next_ms)


def decided_ahead(schedule: Schedule) -> tuple[Range, ...]:
    """Return the instants that may lie ahead and have fired: they are left out when a schedule begins again.

    Intervals begin again where it does, so they are other instants.
    """
    if schedule.spec is None or has_anchor(schedule.spec):
        return ()
    until_ms = schedule.queued[0] - 1 if schedule.queued else schedule.last_ms
    newest = ((schedule.fired_from_ms, until_ms),) if 0 < schedule.fired_from_ms <= until_ms else ()
    return tuple(sorted((*schedule.passed, *newest)))[-limits.PASSED_RANGES_MAX :]


def is_beyond_rule(schedule: Schedule, now_ms: int) -> bool:
    """Return whether the next instant lies beyond what the times give from now, because a clock that was ahead has
    decided those before it.
    """
    if not schedule.is_armed or schedule.spec is None or not schedule.next_ms:
        return False
    until_ms = now_ms + limits.AHEAD_MS
    anchor_ms = min(schedule.armed_ms, until_ms)
    return 0 < next_instant(schedule.spec, anchor_ms, until_ms, decided_ahead(schedule)) < schedule.next_ms


def next_timer_ms(schedule: Schedule) -> int:
    """Return when the timer is to fire; 0: never."""
    if not schedule.is_armed:
        return 0
    return schedule.paused_until_ms or due_ms(schedule)


def evolve(schedule: Schedule, event: ScheduleEvent, at_ms: int) -> Schedule:
    """Return the schedule after an event."""
    match event:
        case ScheduleArmed():
            schedule = _begun_again(schedule) if 0 < event.next_ms <= schedule.last_ms else schedule
            return replace(
                schedule,
                last_ms=min(schedule.last_ms, event.next_ms - 1) if event.next_ms else schedule.last_ms,
                def_id=event.def_id,
                revision=event.revision,
                arms=schedule.arms + 1,
                is_armed=True,
                is_spent=False,
                spec=event.spec,
                run=event.run,
                armed_ms=event.armed_ms,
                next_ms=event.next_ms,
                fires=schedule.fires if schedule.is_armed and event.def_id == schedule.def_id else 0,
                refusals=0,
                queued=(),
            )
        case ScheduleDisarmed(reason=reason, revision=revision):
            return replace(
                schedule,
                is_armed=False,
                is_spent=reason == SPENT,
                revision=revision,
                paused_until_ms=0,
                next_ms=0,
                queued=(),
                run=None,
            )
        case ScheduleFired():
            return _fired(schedule, event, at_ms)
        case FireSettled():
            return _settled(schedule, event)
        case InstantsSkipped(last_ms=last_ms, queued=queued, next_ms=next_ms):
            if event.count and last_ms - schedule.last_ms > limits.AHEAD_MS:
                schedule = replace(schedule, leap_ms=schedule.last_ms, fired_from_ms=0)
            return replace(schedule, last_ms=max(schedule.last_ms, last_ms), queued=queued, next_ms=next_ms)
        case SchedulePaused(until_ms=until_ms):
            return replace(schedule, paused_until_ms=until_ms, queued=())
        case ScheduleResumed(next_ms=next_ms):
            return replace(schedule, paused_until_ms=0, next_ms=next_ms)
        case _:
            assert_never(event)


def _begun_again(schedule: Schedule) -> Schedule:
    """Return the schedule without what a clock ahead has decided, but for what fired."""
    return replace(schedule, passed=decided_ahead(schedule), leap_ms=0, fired_from_ms=0)


def _fired_from(schedule: Schedule, event: ScheduleFired | FireSettled) -> int:
    if schedule.fired_from_ms or event.is_manual or event.instant_ms <= schedule.leap_ms:
        return schedule.fired_from_ms
    return event.instant_ms


def _fired(schedule: Schedule, event: ScheduleFired, at_ms: int) -> Schedule:
    fire = copy_as(Fire, event, fired_ms=at_ms, arms=schedule.arms)
    last_ms = schedule.last_ms if event.is_manual else max(schedule.last_ms, event.instant_ms)
    return replace(
        schedule,
        number=event.number,
        fires=schedule.fires + 1,
        running=(*schedule.running, fire),
        queued=event.queued,
        last_ms=last_ms,
        fired_from_ms=_fired_from(schedule, event),
        next_ms=event.next_ms,
        last_run_ms=at_ms,
        last_run_id=event.run_id,
        last_status="",
        last_error="",
    )


def _settled(schedule: Schedule, event: FireSettled) -> Schedule:
    fire = next((one for one in schedule.running if one.number == event.number), None)
    if fire is None:  # no run could be started
        last_ms = schedule.last_ms if event.is_manual else max(schedule.last_ms, event.instant_ms)
        schedule = replace(
            schedule,
            number=event.number,
            fires=schedule.fires + 1,
            last_ms=last_ms,
            fired_from_ms=_fired_from(schedule, event),
        )
    elif not event.counts and fire.arms == schedule.arms:
        schedule = replace(schedule, fires=schedule.fires - 1)
    schedule = replace(
        schedule,
        running=tuple(one for one in schedule.running if one.number != event.number),
        queued=event.queued,
        next_ms=event.next_ms,
        refusals=0 if event.counts else schedule.refusals + 1,
    )
    if event.number != schedule.number:
        return schedule
    return replace(
        schedule,
        last_run_ms=event.fired_ms,
        last_run_id=event.run_id,
        last_status=event.status,
        last_error=event.error,
    )
