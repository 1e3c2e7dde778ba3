"""The family of channels: queues of messages between agents, applications and the world.

An aggregate is a queue: the messages of a channel in one scope. Its state has counters, cursors, leases and who waits;
messages are in the log and in rows. Its routes have the form that existing clients know. Microservices append
PublishMessage and ReadQueue records.

    caller.py             who asks, for which queue
    state.py, decide.py   the rules; entries.py, spans.py and sorted_chunks.py hold what a state has many of
    cursor.py             ids of messages and cursors
    items.py              the rows of messages
    api.py, events.py     the operations, as transports and tools offer them, and the events
    handlers.py           carries them out; access.py and fields.py check, operations.py, store.py, message_cache.py do
    stream.py             the messages of a queue for a client that follows them
    services.py           opens all of it in a process
"""

from typing import Any

from loomlog.schemas.generated.channel_commands import (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
from loomlog.services.core.families import (
    CHANNEL_SET,
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Rebuild,
    Rules,
    StateFiles,
    inner_commands,
)
from loomlog.services.families.channel.api import ENDPOINTS, OPERATIONS, TOOL
from loomlog.services.families.channel.caller import FAMILY_NAME, USER, queue_name
from loomlog.services.families.channel.decide import decide as decide_channel
from loomlog.services.families.channel.decide import sends as channel_sends
from loomlog.services.families.channel.events import EVENT_TYPES
from loomlog.services.families.channel.items import items as channel_items
from loomlog.services.families.channel.state import VERSION, QueueState, evolve, initial, next_timer_ms

_command = inner_commands(lambda command: queue_name(command.channel, command.scope, command.scope_id))


def _subject(command: Any) -> str:
    """Return whose key encrypts: the user of a user scope, else the publisher."""
    return str(command.scope_id if command.scope == USER else command.envelope.subject)


FAMILY = Family(
    name=FAMILY_NAME,
    summary="The messages of a channel in one scope.",
    rules=Rules(
        state=QueueState,
        initial=initial,
        decide=decide_channel,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=Lifecycle(
        state_files=StateFiles.EVENTS,
        erasure=Erasure.KEYS,
        audit=Audit.WHILE_KEPT,
        rebuild=Rebuild.ROWS,
    ),
    commands=(
        _command(PublishMessage, "publish", "Publish a message."),
        _command(ReadQueue, "read", "Take the next messages."),
        _command(SettleLease, "settle", "Tell which messages were taken."),
        _command(AckCursor, "ack", "Move a cursor."),
        _command(WatchQueue, "watch", "Report how many messages there are."),
        _command(PurgeQueue, "purge", "Remove all messages."),
    ),
    content_subject=_subject,
    sends=channel_sends,
    items=channel_items,
    topics=CHANNEL_SET,
    operations=OPERATIONS,
    endpoints=ENDPOINTS,
    event_types=EVENT_TYPES,
    tools=(TOOL,),
    services="loomlog.services.families.channel.services",
)
