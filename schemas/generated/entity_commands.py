"""Records of the namespace loom.entity.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope, ImportOrigin
from loomlog.schemas.records import Record


class ImportAggregate(Record, frozen=True, kw_only=True):
    """Takes in a part of an aggregate that happened elsewhere and has no events here; parts come in order."""

    SCHEMA: ClassVar[str] = "loom.entity.commands.ImportAggregate"

    envelope: CommandEnvelope
    """Id and sender."""
    aggregate: str
    """Full id: <family>:<tenant>/<id>."""
    origin: ImportOrigin
    """Where it happened."""
    first_seq: int
    """Seq there of the first event of this part, from 1."""
    events: tuple[bytes, ...]
    """The events in order, each a record of schemas/ids.json with the envelope it had."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "aggregate": self.aggregate,
            "origin": self.origin.to_avro(),
            "first_seq": self.first_seq,
            "events": self.events,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            aggregate=value["aggregate"],
            origin=ImportOrigin.from_avro(value["origin"]),
            first_seq=value["first_seq"],
            events=tuple(value["events"]),
        )


class RepairAggregate(Record, frozen=True, kw_only=True):
    """Ends the quarantine of an aggregate: an operator states its state."""

    SCHEMA: ClassVar[str] = "loom.entity.commands.RepairAggregate"

    envelope: CommandEnvelope
    """Id and sender."""
    aggregate: str
    """Full id: <family>:<tenant>/<id>."""
    state: bytes | None = None
    """Canonical encoding of the new state; null: the last state that could be folded."""
    reason: str = ''
    """Why."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "aggregate": self.aggregate,
            "state": self.state,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            aggregate=value["aggregate"],
            state=value["state"],
            reason=value["reason"],
        )


RECORDS = (
    ImportAggregate,
    RepairAggregate,
)
Command = ImportAggregate | RepairAggregate
