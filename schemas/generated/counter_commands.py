"""Records of the namespace loom.counter.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

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


class ResetCounter(Record, frozen=True, kw_only=True):
    """Sets a counter to zero."""

    SCHEMA: ClassVar[str] = "loom.counter.commands.ResetCounter"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    name: str
    """Name of the counter within its tenant."""


RECORDS = (
    IncrementCounter,
    ResetCounter,
)
Command = IncrementCounter | ResetCounter
