"""Records of the namespace loom.erasure.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class EraseRuns(Record, frozen=True, kw_only=True):
    """Erases the runs of a subject from all read models."""

    SCHEMA: ClassVar[str] = "loom.erasure.commands.EraseRuns"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    erasure_id: str
    """Id of the erasure."""
    subject: str
    """The person: a user_id, or (tenant) for runs that name no user."""
    run_ids: tuple[str, ...]
    """Its runs, all ended, whose rows are deleted."""
    in_clear: bool
    """Whether content is stored in clear here, so that rows of its memory are deleted too."""
    by: str
    """Subject of the caller."""
    reason: str = ''
    """Why it was asked for."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "erasure_id": self.erasure_id,
            "subject": self.subject,
            "run_ids": self.run_ids,
            "in_clear": self.in_clear,
            "by": self.by,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            erasure_id=value["erasure_id"],
            subject=value["subject"],
            run_ids=tuple(value["run_ids"]),
            in_clear=value["in_clear"],
            by=value["by"],
            reason=value["reason"],
        )


RECORDS = (
    EraseRuns,
)
Command = EraseRuns
