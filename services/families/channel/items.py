"""Rows of queues: the bodies of messages.

    message     by `<name of the queue>#<position>`: a visible message. One that was delayed names its number instead of
                a value; its body is the row of that number
    delayed     by `<name of the queue>#<number>`: a message that was published with deliver_at

Both expire with the message, at the latest 30 days after it became visible. A row before the first position of the
queue is of a message that is gone: a purge removes no rows. Messages of a lease are still there, however, for the call
that has it: their rows stay when max_messages pushes them out.

Before: the projection of entities. After: store.py.
"""

from collections.abc import Sequence

import orjson

from loomlog.schemas.generated.channel_events import MessagePublished, MessagesDropped, MessagesSurfaced
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item
from loomlog.services.families.channel import limits
from loomlog.services.families.channel.caller import queue_name
from loomlog.services.families.channel.cursor import NS_PER_MS
from loomlog.services.families.channel.entries import leased_positions
from loomlog.services.families.channel.state import ChannelEvent, QueueState, expiry_ms

MESSAGE_ITEM, DELAYED_ITEM = "message", "delayed"
DIGITS = 16


def row_prefix(channel: str, scope: str, scope_id: str) -> str:
    """Return the beginning of the ids of all rows of a queue."""
    return f"{queue_name(channel, scope, scope_id)}#"


def row_id(prefix: str, position: int) -> str:
    """Return the id of the row of a position, or of the number of a delayed message, in their order."""
    return f"{prefix}{position:0{DIGITS}d}"


def items(state: QueueState, event: ChannelEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    match event:
        case MessagePublished():
            prefix = row_prefix(event.channel, event.scope, event.scope_id)
            kind, number = (MESSAGE_ITEM, event.position) if event.position else (DELAYED_ITEM, event.number)
            gone_ms = expiry_ms(event.expires_at_ms, event.visible_ns // NS_PER_MS)
            kept_ms = max(1, gone_ms - envelope.at_ms)
            return [Item(kind=kind, id=row_id(prefix, number), document=document(event), kept_ms=kept_ms)]
        case MessagesSurfaced(messages=messages):
            prefix = row_prefix(event.channel, event.scope, event.scope_id)
            return [
                Item(
                    kind=MESSAGE_ITEM,
                    id=row_id(prefix, message.position),
                    document=orjson.dumps({"number": message.number, "visible_ns": message.visible_ns}).decode(),
                    kept_ms=limits.AGE_MS,
                )
                for message in messages
            ]
        case MessagesDropped(first_position=first_position, count=count):
            prefix = row_prefix(event.channel, event.scope, event.scope_id)
            gone = range(first_position - min(count, limits.DROPPED_ROWS_MAX), first_position)
            leased = leased_positions(state.buckets) if state.leased else ()
            return [Item(kind=MESSAGE_ITEM, id=row_id(prefix, one)) for one in gone if one not in leased]
    return ()


def document(event: MessagePublished) -> str:
    """Return the document of the row of a message."""
    fields = {
        "message_id": event.message_id,
        "number": event.number,
        "value": event.value,
        "bytes": event.value_bytes,
        "published_ns": event.published_ns,
        "visible_ns": event.visible_ns,
        "expires_at_ms": event.expires_at_ms,
        "publisher": event.publisher,
    }
    return orjson.dumps(fields).decode()
