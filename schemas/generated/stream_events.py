"""Records of the namespace loom.stream.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.records import Record


class Claim(Record, frozen=True, kw_only=True):
    """A process takes the partition; the offset of this record is the new term."""

    SCHEMA: ClassVar[str] = "loom.stream.events.Claim"

    owner: str
    """Name of the process."""
    reason: str = ''
    """Why: assigned, fenced, unknown_outcome, standby."""
    lifeline: str = ''
    """host:port/incarnation of a socket that breaks when the process dies and greets with its incarnation; empty:
    there is none.
    """

    def to_avro(self) -> dict[str, Any]:
        return {
            "owner": self.owner,
            "reason": self.reason,
            "lifeline": self.lifeline,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            owner=value["owner"],
            reason=value["reason"],
            lifeline=value["lifeline"],
        )


RECORDS = (
    Claim,
)
Event = Claim
