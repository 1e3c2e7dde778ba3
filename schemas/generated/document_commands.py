"""Records of the namespace loom.document.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

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


RECORDS = (
    PutDocument,
)
Command = PutDocument
