"""Records of the namespace loom.schedule.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import ScheduledRun, ScheduleSpec
from loomlog.schemas.records import Record


class FireSettled(Record, frozen=True, kw_only=True):
    """A fire of a schedule is over."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.FireSettled"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "instant_ms": self.instant_ms,
            "run_id": self.run_id,
            "fired_ms": self.fired_ms,
            "is_manual": self.is_manual,
            "late_ms": self.late_ms,
            "status": self.status,
            "error": self.error,
            "counts": self.counts,
            "queued": self.queued,
            "next_ms": self.next_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            number=value["number"],
            instant_ms=value["instant_ms"],
            run_id=value["run_id"],
            fired_ms=value["fired_ms"],
            is_manual=value["is_manual"],
            late_ms=value["late_ms"],
            status=value["status"],
            error=value["error"],
            counts=value["counts"],
            queued=tuple(value["queued"]),
            next_ms=value["next_ms"],
        )


class InstantsSkipped(Record, frozen=True, kw_only=True):
    """Instants of a schedule passed without a fire."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.InstantsSkipped"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "count": self.count,
            "is_at_least": self.is_at_least,
            "reason": self.reason,
            "queued": self.queued,
            "next_ms": self.next_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            first_ms=value["first_ms"],
            last_ms=value["last_ms"],
            count=value["count"],
            is_at_least=value["is_at_least"],
            reason=value["reason"],
            queued=tuple(value["queued"]),
            next_ms=value["next_ms"],
        )


class ScheduleArmed(Record, frozen=True, kw_only=True):
    """A schedule fires as a version of its definition says."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleArmed"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "revision": self.revision,
            "spec": self.spec.to_avro(),
            "run": self.run.to_avro(),
            "armed_ms": self.armed_ms,
            "next_ms": self.next_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            revision=value["revision"],
            spec=ScheduleSpec.from_avro(value["spec"]),
            run=ScheduledRun.from_avro(value["run"]),
            armed_ms=value["armed_ms"],
            next_ms=value["next_ms"],
        )


class ScheduleDisarmed(Record, frozen=True, kw_only=True):
    """A schedule fires no more."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleDisarmed"

    def_id: str
    """The version that was armed."""
    reason: str
    """retired, deleted, removed, or max_fires: it has fired as often as it may."""
    revision: int = 0
    """Number of events of its definition."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "revision": self.revision,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            revision=value["revision"],
            reason=value["reason"],
        )


class ScheduleFired(Record, frozen=True, kw_only=True):
    """A schedule starts a run."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleFired"

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "number": self.number,
            "instant_ms": self.instant_ms,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "is_manual": self.is_manual,
            "late_ms": self.late_ms,
            "cancels": self.cancels,
            "queued": self.queued,
            "next_ms": self.next_ms,
            "run": self.run.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            number=value["number"],
            instant_ms=value["instant_ms"],
            run_id=value["run_id"],
            attempt=value["attempt"],
            is_manual=value["is_manual"],
            late_ms=value["late_ms"],
            cancels=tuple(value["cancels"]),
            queued=tuple(value["queued"]),
            next_ms=value["next_ms"],
            run=ScheduledRun.from_avro(value["run"]),
        )


class SchedulePaused(Record, frozen=True, kw_only=True):
    """Instants of a schedule pass without a fire."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.SchedulePaused"

    until_ms: int
    """When it goes on by itself, UTC milliseconds."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            until_ms=value["until_ms"],
        )


class ScheduleResumed(Record, frozen=True, kw_only=True):
    """A schedule fires again."""

    SCHEMA: ClassVar[str] = "loom.schedule.events.ScheduleResumed"

    next_ms: int = 0
    """The next instant, UTC milliseconds; 0: none."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "next_ms": self.next_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            next_ms=value["next_ms"],
        )


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
