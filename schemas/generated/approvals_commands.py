"""Records of the namespace loom.approvals.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class SetPolicy(Record, frozen=True, kw_only=True):
    """Put the rules of a tenant in force, in place of those before."""

    SCHEMA: ClassVar[str] = "loom.approvals.commands.SetPolicy"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    text: str
    """The rules as canonical JSON."""
    replaces: int = -1
    """Version that must be in force; -1: any."""
    restores: int = 0
    """Version whose rules these are; 0: they are new."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "text": self.text,
            "replaces": self.replaces,
            "restores": self.restores,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            text=value["text"],
            replaces=value["replaces"],
            restores=value["restores"],
        )


RECORDS = (
    SetPolicy,
)
Command = SetPolicy
