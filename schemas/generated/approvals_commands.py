"""Records of the namespace loom.approvals.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class SetPolicy(Record, frozen=True, kw_only=True):
    """Put the rules of a tenant in force, in place of those before."""

    SCHEMA: ClassVar[str] = "loom.approvals.commands.SetPolicy"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    text: str
    """The rules as canonical JSON."""
    replaces: int = -1
    """Version that must be in force; -1: any."""
    restores: int = 0
    """Version whose rules these are; 0: they are new."""


RECORDS = (
    SetPolicy,
)
Command = SetPolicy
