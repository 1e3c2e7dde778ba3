"""Records of the namespace loom.counter.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.records import Record


class CounterIncremented(Record, frozen=True, kw_only=True):
    """A counter has grown."""

    SCHEMA: ClassVar[str] = "loom.counter.events.CounterIncremented"

    by: int
    """What was added."""
    value: int
    """Value after it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "value": self.value,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            by=value["by"],
            value=value["value"],
        )


RECORDS = (
    CounterIncremented,
)
Event = CounterIncremented
