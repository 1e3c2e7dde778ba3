"""Records of the namespace loom.erasure.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

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


RECORDS = (
    RunsErased,
)
Event = RunsErased
