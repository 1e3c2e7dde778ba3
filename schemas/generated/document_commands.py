"""Records of the namespace loom.document.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class PutDocument(Record, frozen=True, kw_only=True):
    """Keeps a document, in place of the one of its name."""

    SCHEMA: ClassVar[str] = "loom.document.commands.PutDocument"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the document within its tenant."""
    text: str
    """What it says."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "name": self.name,
            "text": self.text,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            name=value["name"],
            text=value["text"],
        )


RECORDS = (
    PutDocument,
)
Command = PutDocument
