"""A record of the log in a few words, for stories."""

from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.generated.stream_events import Claim
from tests.simulation.log import Record

STORY_FIELDS = (
    "owner",
    "reason",
    "turn",
    "number",
    "trigger",
    "index",
    "attempt",
    "kind",
    "outcome",
    "text",
    "effect_class",
)


def told(record: Record, term: int | None) -> str:
    """Where it landed, what it says, and whether it is stale under the partition's term."""
    place = f"{record.topic.removeprefix('loom.')}/{record.partition}@{record.offset}"
    try:
        decoded = local_codec().decode(record.value or b"")
    except Undecodable:
        return f"{place} unreadable bytes"
    text, envelope = decoded.record, decoded.envelope
    name = type(text).__name__
    if envelope is None:
        return f"{place} {name} {getattr(text, 'run_id', '')}"
    stale = " STALE" if not isinstance(text, Claim) and envelope.term != term else ""
    facts = ", ".join(f"{field} {getattr(text, field)}" for field in STORY_FIELDS if hasattr(text, field))
    return f"{place} {name} {envelope.aggregate} seq {envelope.seq} term {envelope.term}{stale} {facts}"
