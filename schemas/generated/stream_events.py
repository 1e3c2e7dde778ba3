"""Records of the namespace loom.stream.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

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


RECORDS = (
    Claim,
)
Event = Claim
