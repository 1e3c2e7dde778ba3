"""Records of the namespace loom.schedule.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope, ScheduledRun, ScheduleSpec
from loomlog.schemas.records import Record


class ArmSchedule(Record, frozen=True, kw_only=True):
    """Let a schedule fire as a version of its definition says."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.ArmSchedule"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str
    """The version."""
    spec: ScheduleSpec
    """When it fires."""
    run: ScheduledRun
    """What it starts."""
    revision: int = 0
    """Number of events of its definition that the sender has read; older ones change nothing."""
    from_now: bool = False
    """Begin again from now when the next instant lies beyond the times: a clock that was ahead had decided."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "def_id": self.def_id,
            "revision": self.revision,
            "spec": self.spec.to_avro(),
            "run": self.run.to_avro(),
            "from_now": self.from_now,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            def_id=value["def_id"],
            revision=value["revision"],
            spec=ScheduleSpec.from_avro(value["spec"]),
            run=ScheduledRun.from_avro(value["run"]),
            from_now=value["from_now"],
        )


class DisarmSchedule(Record, frozen=True, kw_only=True):
    """Let a schedule fire no more."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.DisarmSchedule"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    revision: int = 0
    """Number of events of its definition that the sender has read; older ones change nothing."""
    reason: str = 'retired'
    """Why, in a word: retired, deleted or removed."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "revision": self.revision,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            revision=value["revision"],
            reason=value["reason"],
        )


class NoteRunEnded(Record, frozen=True, kw_only=True):
    """Tell a schedule that a run of it has ended, or was refused."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.NoteRunEnded"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    run_id: str
    """The run."""
    status: str
    """completed, failed, cancelled or refused."""
    code: str = ''
    """Code of the failure or refusal."""
    message: str = ''
    """Its text."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "run_id": self.run_id,
            "status": self.status,
            "code": self.code,
            "message": self.message,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            run_id=value["run_id"],
            status=value["status"],
            code=value["code"],
            message=value["message"],
        )


class PauseSchedule(Record, frozen=True, kw_only=True):
    """Let instants pass without a fire."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.PauseSchedule"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str = ''
    """The version that must be armed; empty: any."""
    until_ms: int = 0
    """When it goes on by itself, UTC milliseconds; 0: a hundred years."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "def_id": self.def_id,
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            def_id=value["def_id"],
            until_ms=value["until_ms"],
        )


class ResumeSchedule(Record, frozen=True, kw_only=True):
    """End a pause."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.ResumeSchedule"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str = ''
    """The version that must be armed; empty: any."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "def_id": self.def_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            def_id=value["def_id"],
        )


class RunScheduleNow(Record, frozen=True, kw_only=True):
    """Fire at once; the next instant stays as it is."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.RunScheduleNow"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str = ''
    """The version that must be armed; empty: any."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "def_id": self.def_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            def_id=value["def_id"],
        )


RECORDS = (
    ArmSchedule,
    DisarmSchedule,
    NoteRunEnded,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
Command = ArmSchedule | DisarmSchedule | NoteRunEnded | PauseSchedule | ResumeSchedule | RunScheduleNow
