"""Records of the namespace loom.erasure.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.records import Record


class RunsErased(Record, frozen=True, kw_only=True):
    """The runs of a subject are erased from all read models."""

    SCHEMA: ClassVar[str] = "loom.erasure.events.RunsErased"

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
            erasure_id=value["erasure_id"],
            subject=value["subject"],
            run_ids=tuple(value["run_ids"]),
            in_clear=value["in_clear"],
            by=value["by"],
            reason=value["reason"],
        )


RECORDS = (
    RunsErased,
)
Event = RunsErased
