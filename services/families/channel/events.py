"""The events of channels for clients that subscribe to them. Pure.

Before: __init__.py. After: services/api/mcp/event_operations.py.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from loomlog.services.core.event_types import Arguments, EventForm, EventType
from loomlog.services.families.channel.api import FOLLOW, PEEK, ChannelMessage
from loomlog.services.families.channel.limits import NAME_CHARACTERS_MAX

_TEXT = {"type": "string", "maxLength": NAME_CHARACTERS_MAX}


def _poll_fields(arguments: Arguments, cursor: str | None, limit: int) -> Mapping[str, Any]:
    if cursor is None:
        return {**arguments, "from_cursor": "", "order": "newest", "max_messages": 1}
    return {**arguments, "from_cursor": cursor, "max_messages": limit}


def _form(arguments: Arguments, message: ChannelMessage) -> EventForm:
    return EventForm(
        id=message.id if message.position is UNSET else message.position,
        at=message.published_at,
        data={"channel": arguments["channel"], "id": message.id, "value": message.value},
    )


MESSAGES = EventType(
    name="channel.message",
    description="A message was published to a channel.",
    arguments={
        "type": "object",
        "properties": {
            "channel": {**_TEXT, "description": "Name of the channel."},
            "scope": {**_TEXT, "description": "global, tenant, agent or user; absent: that of the channel."},
            "scope_id": {**_TEXT, "description": "Whose queue it is, in a channel with several."},
        },
        "required": ["channel"],
        "additionalProperties": False,
    },
    payload={
        "type": "object",
        "properties": {"channel": {"type": "string"}, "id": {"type": "string"}, "value": {}},
        "required": ["channel", "id", "value"],
    },
    record=ChannelMessage,
    poll=PEEK,
    poll_fields=_poll_fields,
    records=lambda batch: batch.messages,
    follow=FOLLOW,
    path=lambda arguments: {"name": arguments["channel"]},
    form=_form,
)
EVENT_TYPES = (MESSAGES,)
