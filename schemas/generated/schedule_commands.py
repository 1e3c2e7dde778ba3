"""Records of the namespace loom.schedule.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope, ScheduledRun, ScheduleSpec
from loomlog.schemas.records import Record


class ArmSchedule(Record, frozen=True, kw_only=True):
    """Let a schedule fire as a version of its definition says."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.ArmSchedule"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "name", "def_id", "revision", "spec", "run", "from_now",
    )

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


class ResumeSchedule(Record, frozen=True, kw_only=True):
    """End a pause."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.ResumeSchedule"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str = ''
    """The version that must be armed; empty: any."""


class RunScheduleNow(Record, frozen=True, kw_only=True):
    """Fire at once; the next instant stays as it is."""

    SCHEMA: ClassVar[str] = "loom.schedule.commands.RunScheduleNow"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the schedule."""
    def_id: str = ''
    """The version that must be armed; empty: any."""


RECORDS = (
    ArmSchedule,
    DisarmSchedule,
    NoteRunEnded,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
Command = ArmSchedule | DisarmSchedule | NoteRunEnded | PauseSchedule | ResumeSchedule | RunScheduleNow
