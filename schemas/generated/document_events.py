"""Records of the namespace loom.document.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.records import Record


class DocumentKept(Record, frozen=True, kw_only=True):
    """A document was kept."""

    SCHEMA: ClassVar[str] = "loom.document.events.DocumentKept"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    text: str
    """What it says."""
    revision: int
    """How often it was kept, this time included."""


RECORDS = (
    DocumentKept,
)
Event = DocumentKept
