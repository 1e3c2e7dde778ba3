"""Records of the namespace loom.schedule.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import ScheduledRun, ScheduleSpec
from loomlog.schemas.records import Record


class FireSettled(Record, frozen=True, kw_only=True):
    """A fire of a schedule is over."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.FireSettled"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "number", "instant_ms", "run_id", "fired_ms", "is_manual", "late_ms", "status", "error", "counts", "queued",
        "next_ms",
    )

    number: int
    """Number of the fire."""
    instant_ms: int
    """Its instant, UTC milliseconds."""
    fired_ms: int
    """When it fired, UTC milliseconds."""
    status: str
    """completed, failed, cancelled, or skipped: the run was refused for now."""
    run_id: str = ''
    """Its run; empty: none could be started."""
    is_manual: bool = False
    """By run-now."""
    late_ms: int = 0
    """As in ScheduleFired."""
    error: str = ''
    """What went wrong; empty: nothing."""
    counts: bool = True
    """Whether it counts towards max_fires."""
    queued: tuple[int, ...] = ()
    """Instants that are left to fire, one after another."""
    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""


class InstantsSkipped(Record, frozen=True, kw_only=True):
    """Instants of a schedule passed without a fire."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.InstantsSkipped"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "first_ms", "last_ms", "count", "is_at_least", "reason", "queued", "next_ms",
    )

    first_ms: int
    """The first of the instants, UTC milliseconds."""
    last_ms: int
    """The last one."""
    count: int
    """How many do not fire."""
    reason: str
    """overlap: a run of it works; catch_up: they passed unseen; paused."""
    is_at_least: bool = False
    """There were more than are counted."""
    queued: tuple[int, ...] = ()
    """Instants that wait, to fire one after another."""
    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""


class ScheduleArmed(Record, frozen=True, kw_only=True):
    """A schedule fires as a version of its definition says."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleArmed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "def_id", "revision", "spec", "run", "armed_ms", "next_ms",
    )

    def_id: str
    """The version."""
    spec: ScheduleSpec
    """When it fires."""
    run: ScheduledRun
    """What it starts."""
    revision: int = 0
    """Number of events of its definition."""
    armed_ms: int = 0
    """Where the intervals of @every begin, UTC milliseconds."""
    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""


class ScheduleDisarmed(Record, frozen=True, kw_only=True):
    """A schedule fires no more."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleDisarmed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "def_id", "revision", "reason",
    )

    def_id: str
    """The version that was armed."""
    reason: str
    """retired, deleted, removed, or max_fires: it has fired as often as it may."""
    revision: int = 0
    """Number of events of its definition."""


class ScheduleFired(Record, frozen=True, kw_only=True):
    """A schedule starts a run."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleFired"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "def_id", "number", "instant_ms", "run_id", "attempt", "is_manual", "late_ms", "cancels", "queued", "next_ms",
        "run",
    )

    def_id: str
    """The version."""
    number: int
    """Number of this fire, from 1."""
    instant_ms: int
    """The instant for which it is, UTC milliseconds."""
    run_id: str
    """The run."""
    run: ScheduledRun
    """What is started."""
    attempt: int = 1
    """1, and one more for each start before it that was refused in a row."""
    is_manual: bool = False
    """By run-now; the instant is the time of that."""
    late_ms: int = 0
    """Milliseconds between the instant, with its jitter, and the decision."""
    cancels: tuple[str, ...] = ()
    """Runs that are cancelled for it."""
    queued: tuple[int, ...] = ()
    """Instants that fire after it, one after another."""
    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""


class SchedulePaused(Record, frozen=True, kw_only=True):
    """Instants of a schedule pass without a fire."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.SchedulePaused"

    until_ms: int
    """When it goes on by itself, UTC milliseconds."""


class ScheduleResumed(Record, frozen=True, kw_only=True):
    """A schedule fires again."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleResumed"

    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""


RECORDS = (
    FireSettled,
    InstantsSkipped,
    ScheduleArmed,
    ScheduleDisarmed,
    ScheduleFired,
    SchedulePaused,
    ScheduleResumed,
)
Event = FireSettled | InstantsSkipped | ScheduleArmed | ScheduleDisarmed | ScheduleFired | SchedulePaused | ScheduleResumed
