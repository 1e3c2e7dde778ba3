"""Records of the namespace loom.entity.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope, ImportOrigin
from loomlog.schemas.records import Record


class ImportAggregate(Record, frozen=True, kw_only=True):
    """Takes in a part of an aggregate that happened elsewhere and has no events here; parts come in order."""

    SCHEMA: ClassVar[str] = "loom.entity.commands.ImportAggregate"

    envelope: CommandEnvelope
    """Id and sender."""
    aggregate: str
    """Full id: <family>:<tenant>/<id>."""
    origin: ImportOrigin
    """Where it happened."""
    first_seq: int
    """Seq there of the first event of this part, from 1."""
    events: tuple[bytes, ...]
    """The events in order, each a record of schemas/ids.json with the envelope it had."""


class RepairAggregate(Record, frozen=True, kw_only=True):
    """Ends the quarantine of an aggregate: an operator states its state."""

    SCHEMA: ClassVar[str] = "loom.entity.commands.RepairAggregate"

    envelope: CommandEnvelope
    """Id and sender."""
    aggregate: str
    """Full id: <family>:<tenant>/<id>."""
    state: bytes | None = None
    """Canonical encoding of the new state; null: the last state that could be folded."""
    reason: str = ''
    """Why."""


RECORDS = (
    ImportAggregate,
    RepairAggregate,
)
Command = ImportAggregate | RepairAggregate
