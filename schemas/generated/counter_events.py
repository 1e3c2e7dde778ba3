"""Records of the namespace loom.counter.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.records import Record


class CounterIncremented(Record, frozen=True, kw_only=True):
    """The counter was raised."""

    SCHEMA: ClassVar[str] = "loom.counter.events.CounterIncremented"
    CONTENT: ClassVar[Mapping[str, str]] = {"also": "text"}

    by: int
    """What was added."""
    value: int
    """Value after it."""
    also: str = ''
    """The other counter."""
    reset_at_ms: int = 0
    """When it is set to zero, UTC milliseconds; 0: never."""


class CounterReset(Record, frozen=True, kw_only=True):
    """The counter was set to zero."""

    SCHEMA: ClassVar[str] = "loom.counter.events.CounterReset"

    value: int
    """Value before it."""


RECORDS = (
    CounterIncremented,
    CounterReset,
)
Event = CounterIncremented | CounterReset
