"""Records of the namespace loom.approvals.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "text": self.text,
            "sha256": self.sha256,
            "by": self.by,
            "restores": self.restores,
            "at_ms": self.at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            version=value["version"],
            text=value["text"],
            sha256=value["sha256"],
            by=value["by"],
            restores=value["restores"],
            at_ms=value["at_ms"],
        )


RECORDS = (
    PolicySet,
)
Event = PolicySet
