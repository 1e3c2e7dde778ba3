"""Records of the namespace loom.entity.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import ImportOrigin
from loomlog.schemas.records import Record


class AggregateEventImported(Record, frozen=True, kw_only=True):
    """An event of the aggregate that happened in another installation: it is folded like the event it holds, and
    nothing is sent or done because of it.
    """

    SCHEMA: ClassVar[str] = "loom.entity.events.AggregateEventImported"

    event: bytes
    """The event, a record of schemas/ids.json with the envelope it had there: seq, time, cause and hash chain."""
    remaining: int
    """How many events are still to come; until none is, nothing else is decided in the aggregate."""
    origin: ImportOrigin | None = None
    """Where the aggregate happened, in its first event."""


class AggregateQuarantined(Record, frozen=True, kw_only=True):
    """A rule of the family failed: nothing is decided in the aggregate until it is repaired."""

    SCHEMA: ClassVar[str] = "loom.entity.events.AggregateQuarantined"

    error: str
    """What happened."""
    record_topic: str = ''
    """Topic of the command that was being decided."""
    record_offset: int = -1
    """Its offset; -1 without one."""


class AggregateRestated(Record, frozen=True, kw_only=True):
    """The state of the aggregate, as an operator states it: the fold continues from here, whatever came before; a
    quarantine ends.
    """

    SCHEMA: ClassVar[str] = "loom.entity.events.AggregateRestated"

    state: bytes
    """Canonical encoding of the state."""
    version: int
    """Version of the fold of that state."""
    reason: str
    """Why."""
    by: str
    """Who."""


class CommandHadNoEffect(Record, frozen=True, kw_only=True):
    """A command was accepted and changed nothing; the state is unchanged. The answer of its sender."""

    SCHEMA: ClassVar[str] = "loom.entity.events.CommandHadNoEffect"



class CommandRefused(Record, frozen=True, kw_only=True):
    """A command was refused; the state is unchanged. The answer of its sender."""

    SCHEMA: ClassVar[str] = "loom.entity.events.CommandRefused"

    code: str
    """Error code, snake_case."""
    message: str
    """What was wrong, and what to do."""


RECORDS = (
    AggregateEventImported,
    AggregateQuarantined,
    AggregateRestated,
    CommandHadNoEffect,
    CommandRefused,
)
Event = AggregateEventImported | AggregateQuarantined | AggregateRestated | CommandHadNoEffect | CommandRefused
