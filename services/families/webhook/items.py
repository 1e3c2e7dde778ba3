"""Rows of webhooks: what came in, and what became of it.

    delivery   each that was taken, repeated or refused; key_a is that of its id (`row_key`) when it was taken
    outcome    by `<name>/<run id>`, or for a message `<name>/<hash of the delivery id>`: the last one that is known

Before: the projection of entities. After: deliveries.py.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson

from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.generated.webhook_events import DeliveryRejected, DeliveryRepeated, EventReceived, HookDispatched
from loomlog.services.core.families import Item
from loomlog.services.families.webhook.limits import ROWS_KEPT_MS
from loomlog.services.families.webhook.state import Webhook, WebhookEvent, delivery_key
from loomlog.services.families.webhook.verdicts import ACCEPTED, ACCEPTED_REPLAY

DELIVERY_ITEM, OUTCOME_ITEM = "delivery", "outcome"


SAFE = " !$&'()*+,:;=@"
"""What names keep in ids of rows; others are no names of webhooks, and must not look like several parts."""


def row_key(name: str, delivery_id: str) -> str:
    """Return the key of the rows of a delivery that was taken."""
    return f"{quote(name, safe=SAFE)}/{delivery_key(delivery_id)}"


def outcome_id(name: str, run_id: str, key: str) -> str:
    """Return the id of the row with what became of a delivery; `key` is the hash of its id."""
    return f"{quote(name, safe=SAFE)}/{run_id or key}"


def items(webhook: Webhook, event: WebhookEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    name = webhook.id.partition("/")[2]
    match event:
        case EventReceived():
            document: dict[str, Any] = {
                "delivery_id": event.delivery_id,
                "verdict": ACCEPTED,
                "received_at_ms": event.received_at_ms,
                "run_id": event.run_id,
                "channel": event.channel,
                "def_id": event.def_id,
                "replay_of": event.replay_of,
                "by": event.by,
                "source_position": event.source_position,
                "has_credentials": bool(event.credentials),
                "run_metadata": event.run_metadata,
            }
            return [_delivery(name, envelope, document, row_key(name, event.delivery_id))]
        case DeliveryRepeated():
            document = {
                "delivery_id": event.delivery_id,
                "verdict": ACCEPTED_REPLAY,
                "received_at_ms": event.received_at_ms,
                "run_id": event.run_id,
                "channel": event.channel,
            }
            return [_delivery(name, envelope, document)]
        case DeliveryRejected():
            document = {
                "delivery_id": event.delivery_id,
                "verdict": event.verdict,
                "received_at_ms": event.received_at_ms,
                "detail": event.detail,
                "count": event.count,
            }
            return [_delivery(name, envelope, document)]
        case HookDispatched():
            if not event.run_id and not event.delivery_key:
                return ()
            text = _json({"status": event.status, "code": event.code, "message": event.message})
            row_id = outcome_id(name, event.run_id, event.delivery_key)
            return [Item(kind=OUTCOME_ITEM, id=row_id, document=text, kept_ms=ROWS_KEPT_MS)]


def _delivery(name: str, envelope: Envelope, document: dict[str, Any], key: str = "") -> Item:
    return Item(
        kind=DELIVERY_ITEM,
        id=f"{quote(name, safe=SAFE)}#{envelope.seq:012d}",
        key_a=key,
        number=float(envelope.at_ms),
        document=_json({name: value for name, value in document.items() if value not in ("", False, {}, 0)}),
        kept_ms=ROWS_KEPT_MS,
    )


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
