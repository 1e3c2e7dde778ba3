"""Records of the namespace loom.approvals.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.records import Record


class PolicySet(Record, frozen=True, kw_only=True):
    """Rules of a tenant are in force, for the runs that start from now on."""

    SCHEMA: ClassVar[str] = "loom.approvals.events.PolicySet"

    version: int
    """Number of the version, from 1."""
    text: str
    """The rules as canonical JSON."""
    sha256: str
    """Hash of the text, hex."""
    by: str
    """Subject that set them."""
    restores: int = 0
    """Version whose rules these are; 0: they are new."""
    at_ms: int = 0
    """When, by the owner's clock, UTC milliseconds."""


RECORDS = (
    PolicySet,
)
Event = PolicySet
