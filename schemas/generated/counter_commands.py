"""Records of the namespace loom.counter.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class IncrementCounter(Record, frozen=True, kw_only=True):
    """Adds to a counter."""

    SCHEMA: ClassVar[str] = "loom.counter.commands.IncrementCounter"

    envelope: CommandEnvelope
    """Id and sender."""
    name: str
    """Name of the counter."""
    by: int = 1
    """What is added."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "by": self.by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            by=value["by"],
        )


RECORDS = (
    IncrementCounter,
)
Command = IncrementCounter
