"""Rows of consolidation: pending entries by id, and one row for each target.

    pending     by `mp_...`; key_a is `<scope>/<scope id>`, the number is its place in the queue. Removed when it is
                acknowledged
    target      by `<scope>/<scope id>`: watermark, lease, number of pending entries; the number is the watermark

Before: the projection of entities. After: operations.py.
"""

from collections.abc import Sequence

import orjson

from loomlog.schemas.generated.consolidation_events import PendingAcked, PendingBanked
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item
from loomlog.services.families.consolidation.state import ConsolidationEvent, Target
from loomlog.services.families.memory.author import aggregate_name

PENDING_ITEM, TARGET_ITEM = "pending", "target"


def items(target: Target, event: ConsolidationEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    rows = [_target_row(target)]
    match event:
        case PendingBanked():
            rows.append(_pending_row(event))
        case PendingAcked(ids=ids):
            rows += [Item(kind=PENDING_ITEM, id=one) for one in ids]
    return rows


def _pending_row(event: PendingBanked) -> Item:
    source = event.source
    document = {
        "payload": event.payload,
        "blob": None if event.payload_blob is None else event.payload_blob.to_avro(),
        "bytes": event.payload_bytes,
        "origin": event.origin,
        "source_session_id": "" if source is None else source.session_id,
        "source_run_id": "" if source is None else source.run_id,
    }
    return Item(
        kind=PENDING_ITEM,
        id=event.pending_id,
        key_a=aggregate_name(event.scope, event.scope_id),
        number=event.number,
        document=orjson.dumps(document).decode(),
    )


def _target_row(target: Target) -> Item:
    document = {
        "watermark_at_ms": target.watermark_at_ms,
        "watermark_session_id": target.watermark_session_id,
        "owner": target.owner,
        "expires_at_ms": target.expires_at_ms,
        "pending": target.pending,
        "attempts": target.attempts,
    }
    return Item(
        kind=TARGET_ITEM,
        id=aggregate_name(target.scope, target.scope_id),
        number=target.watermark_at_ms,
        document=orjson.dumps(document).decode(),
    )
