"""Records of the namespace loom.counter.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class IncrementCounter(Record, frozen=True, kw_only=True):
    """Adds to a counter."""

    SCHEMA: ClassVar[str] = "loom.counter.commands.IncrementCounter"
    CONTENT: ClassVar[Mapping[str, str]] = {"also": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the counter within its tenant."""
    by: int
    """What is added; at least 1."""
    also: str = ''
    """Name of another counter of the tenant that is increased by the same; empty: none."""
    reset_after_ms: int = 0
    """Milliseconds after which the counter is set to zero; 0: never."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "by": self.by,
            "also": self.also,
            "reset_after_ms": self.reset_after_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            by=value["by"],
            also=value["also"],
            reset_after_ms=value["reset_after_ms"],
        )


class ResetCounter(Record, frozen=True, kw_only=True):
    """Sets a counter to zero."""

    SCHEMA: ClassVar[str] = "loom.counter.commands.ResetCounter"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the counter within its tenant."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
        )


RECORDS = (
    IncrementCounter,
    ResetCounter,
)
Command = IncrementCounter | ResetCounter
