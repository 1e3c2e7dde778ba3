"""Records of the namespace loom.erasure.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

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


RECORDS = (
    EraseRuns,
)
Command = EraseRuns
