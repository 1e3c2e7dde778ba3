"""The routes of channels.

Before: routes.py. After: channel_endpoints.py.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.services.api import channel_endpoints
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    Handler,
    NamedSchema,
    QueryParameter,
    Route,
    Tag,
)
from loomlog.services.core.access.rules import Access, own_data, requires
from loomlog.services.core.access.scopes import ADMIN, CHANNEL_PUBLISH, CHANNEL_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

TAG = Tag(name="Channels", description="Messages between agents, and between agents and the outside.")
OBJECT: Mapping[str, Any] = {"type": "object"}
TEXT: Mapping[str, Any] = {"type": "string"}
INTEGER: Mapping[str, Any] = {"type": "integer"}
CHANNELS = "/v1/_channels"
CHANNEL = CHANNELS + "/{name:path}"
USER_CHANNEL = "/v1/users/{user_id}/channels/{name:path}"
TENANT = QueryParameter(name="tenant", description="Administrators: the tenant whose channels are meant.")
SCOPE_ID_SCHEMA = {**TEXT, "description": "The user or the agent, of a channel with that scope."}
SCOPE_ID = QueryParameter(name="scope_id", description="The user or the agent, of a channel with that scope.")
FROM_CURSOR = QueryParameter(
    name="from_cursor", description="Cursor of an earlier answer; cur_0 or absent: before the oldest message."
)
MAX_MESSAGES = QueryParameter(name="max_messages", description="Most messages of the answer, 1 to 100.", schema=INTEGER)
ORDER = QueryParameter(
    name="order",
    description="oldest, or newest: the messages before from_cursor, the newest first.",
    schema={"type": "string", "enum": ["oldest", "newest"], "default": "oldest"},
)
DECLARATION: Mapping[str, Any] = {
    "description": {**TEXT, "description": "What the channel is for."},
    "semantic": {**TEXT, "description": "For people: queue, topic or broadcast."},
    "default_ttl": {"description": "Seconds, or a duration such as 7d, that messages are kept; 0: for ever."},
    "max_messages": {**INTEGER, "description": "Messages that a queue keeps; 0: any number."},
}
READ: Mapping[str, Any] = {
    "from_cursor": {**TEXT, "description": "Read after this cursor; absent: after what was read last."},
    "max_messages": {**INTEGER, "description": "Most messages, 1 to 100; 10 if absent."},
    "wait_ms": {**INTEGER, "description": "Wait so long for a message; 30 s at most, which `wait_capped_ms` tells."},
}
PUBLISH_BODY = NamedSchema(
    name="ChannelPublish",
    schema={
        "type": "object",
        "properties": {
            "payload": {"description": "Any JSON value but null, at most 64 KiB."},
            "deliver_at": {**TEXT, "description": "When it becomes visible, RFC 3339, at most 30 days ahead."},
            "ttl": {"description": "Seconds, or a duration such as 1h, until it is gone; absent: as declared."},
            "scope_id": SCOPE_ID_SCHEMA,
        },
        "required": ["payload"],
    },
    example={"payload": {"text": "ready"}},
)
SUBSCRIBE_BODY = NamedSchema(
    name="ChannelSubscribe",
    schema={
        "type": "object",
        "properties": {
            **READ,
            "reader": {**TEXT, "description": "Name of a cursor of one's own; absent: the shared one."},
            "scope_id": SCOPE_ID_SCHEMA,
        },
    },
    example={"max_messages": 10, "wait_ms": 1_000},
)
ACK_BODY = NamedSchema(
    name="ChannelAck",
    schema={
        "type": "object",
        "properties": {
            "cursor": {**TEXT, "description": "Cursor behind the last message that is done with."},
            "reader": {**TEXT, "description": "Name of a cursor of one's own; absent: the shared one."},
            "scope_id": SCOPE_ID_SCHEMA,
        },
        "required": ["cursor"],
    },
    example={"cursor": "cur_0"},
)
NAMES: Mapping[str, Any] = {
    "channels": {"type": "array", "items": TEXT, "description": "Names of channels, at most 32."},
    "scope": {**TEXT, "description": "The scope that they are declared with; absent: whatever it is."},
    "scope_id": SCOPE_ID_SCHEMA,
}
BATCH = NamedSchema(name="ChannelBatch", schema=OBJECT)
PUBLISHED = NamedSchema(name="ChannelPublished", schema=OBJECT)
PEEKED = NamedSchema(name="ChannelMessages", schema=OBJECT)
ACKNOWLEDGED = NamedSchema(name="ChannelAcknowledged", schema=OBJECT)
ROW = NamedSchema(name="Channel", schema=OBJECT)


def _write(
    path: str,
    access: Access,
    handler: Handler,
    summary: str,
    body: NamedSchema,
    response: NamedSchema,
    **more: Any,
) -> Route:
    return Route(
        method="POST",
        path=path,
        access=access,
        handler=handler,
        tag=TAG,
        summary=summary,
        body=body,
        response=response,
        **({"query": (TENANT,), "refusal_statuses": (400, 403, 404, 409, 413, 429, 503)} | more),
    )


CHANNEL_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=CHANNELS,
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.list_channels,
        tag=TAG,
        summary="List the channels by name, with what their queues hold.",
        response=NamedSchema(name="Channels", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(503,),
    ),
    _write(
        CHANNELS,
        requires(TENANT_SCOPE),
        channel_endpoints.create_channel,
        "Declare a channel.",
        NamedSchema(
            name="ChannelCreate",
            schema={
                "type": "object",
                "properties": {
                    "name": {**TEXT, "description": "1 to 128 letters, digits, _ and -."},
                    "scope": {**TEXT, "description": "tenant, user or agent; global is for administrators."},
                    **DECLARATION,
                    "publisher": {**TEXT, "description": "system: only the runtime and administrators publish."},
                    "period": {"description": "Time between two messages of the system: seconds, or 1h."},
                },
                "required": ["name"],
            },
            example={"name": "reviews", "scope": "tenant", "default_ttl": "7d"},
        ),
        ROW,
        status=201,
    ),
    _write(
        CHANNELS + "/_await",
        requires(CHANNEL_READ),
        channel_endpoints.await_messages,
        "Wait until channels have messages; no cursor moves.",
        NamedSchema(
            name="ChannelAwait",
            schema={
                "type": "object",
                "properties": {
                    **NAMES,
                    "mode": {**TEXT, "description": "any, all, or at_least n messages over all channels."},
                    "n": {**INTEGER, "description": "For at_least: how many messages."},
                    **READ,
                },
                "required": ["channels"],
            },
            example={"channels": ["reviews"], "mode": "any", "wait_ms": 1_000},
        ),
        NamedSchema(name="ChannelAwaited", schema=OBJECT),
        takes_instead=Takes.WAIT,
    ),
    _write(
        CHANNELS + "/_broadcast",
        requires(CHANNEL_PUBLISH),
        channel_endpoints.broadcast_message,
        "Publish a value to several channels; if one of them is not allowed, none gets it.",
        NamedSchema(
            name="ChannelBroadcast",
            schema={
                "type": "object",
                "properties": {**NAMES, **PUBLISH_BODY.schema["properties"]},
                "required": ["channels", "payload"],
            },
            example={"channels": ["reviews"], "payload": {"text": "ready"}},
        ),
        NamedSchema(name="ChannelBroadcasted", schema=OBJECT),
    ),
    _write(
        CHANNEL + "/publish",
        requires(CHANNEL_PUBLISH),
        channel_endpoints.publish_message,
        "Publish a message.",
        PUBLISH_BODY,
        PUBLISHED,
    ),
    _write(
        CHANNEL + "/subscribe",
        requires(CHANNEL_READ),
        channel_endpoints.take_messages,
        "Take the next messages; with an Idempotency-Key a repeated request gets the same ones.",
        SUBSCRIBE_BODY,
        BATCH,
        body_optional=True,
        takes_instead=Takes.WAIT,
    ),
    Route(
        method="GET",
        path=CHANNEL + "/peek",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.peek_messages,
        tag=TAG,
        summary="Look at messages; no cursor moves.",
        response=PEEKED,
        query=(FROM_CURSOR, MAX_MESSAGES, ORDER, SCOPE_ID, TENANT),
        refusal_statuses=(400, 404, 503),
    ),
    Route(
        method="GET",
        path=CHANNEL + "/queues",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.list_channel_queues,
        tag=TAG,
        summary="List the queues of a channel, one for each user or agent, with what they hold.",
        response=NamedSchema(name="ChannelQueues", schema=OBJECT),
        query=(LIMIT_PARAMETER, CURSOR_PARAMETER, TENANT),
        refusal_statuses=(400, 404, 503),
    ),
    Route(
        method="GET",
        path=CHANNEL + "/readers",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.list_channel_readers,
        tag=TAG,
        summary="List the cursors of a queue, how far each is behind, and what is leased to it.",
        response=NamedSchema(name="ChannelReaders", schema=OBJECT),
        query=(SCOPE_ID, TENANT),
        refusal_statuses=(400, 404, 503),
    ),
    Route(
        method="GET",
        path=CHANNEL + "/stream",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.follow_channel,
        tag=TAG,
        summary="Follow the messages as server-sent events, each with its cursor as id; no cursor moves.",
        is_stream=True,
        query=(FROM_CURSOR, SCOPE_ID, TENANT),
        refusal_statuses=(400, 404, 503),
    ),
    _write(
        CHANNEL + "/ack",
        requires(CHANNEL_READ),
        channel_endpoints.acknowledge_messages,
        "Move a cursor forward.",
        ACK_BODY,
        ACKNOWLEDGED,
    ),
    Route(
        method="POST",
        path=CHANNEL + "/purge",
        access=requires(TENANT_SCOPE),
        handler=channel_endpoints.purge_channel,
        tag=TAG,
        summary="Remove the messages of all queues of a channel; cursors stay.",
        response=NamedSchema(name="ChannelPurged", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(403, 404, 503),
    ),
    _write(
        CHANNEL,
        requires(ADMIN),
        channel_endpoints.publish_system_message,
        "Publish to a channel of the system (`_system/...`); for administrators.",
        PUBLISH_BODY,
        PUBLISHED,
    ),
    Route(
        method="PATCH",
        path=CHANNEL,
        access=requires(TENANT_SCOPE),
        handler=channel_endpoints.update_channel,
        tag=TAG,
        summary="Change a channel that was declared at run time.",
        body=NamedSchema(
            name="ChannelUpdate",
            schema={"type": "object", "properties": DECLARATION},
            example={"description": "Findings to be reviewed"},
        ),
        response=ROW,
        query=(TENANT,),
        refusal_statuses=(400, 403, 404, 409, 413, 503),
    ),
    Route(
        method="DELETE",
        path=CHANNEL,
        access=requires(TENANT_SCOPE),
        handler=channel_endpoints.delete_channel,
        tag=TAG,
        summary="Delete the declaration of a channel; its messages stay until they expire.",
        query=(TENANT,),
        status=204,
        refusal_statuses=(403, 404, 409, 503),
    ),
    _write(
        USER_CHANNEL + "/publish",
        own_data(CHANNEL_PUBLISH),
        channel_endpoints.publish_message,
        "Publish a message to a user.",
        PUBLISH_BODY,
        PUBLISHED,
        operation="publish_user_message",
    ),
    _write(
        USER_CHANNEL + "/subscribe",
        own_data(CHANNEL_READ),
        channel_endpoints.take_messages,
        "Take the next messages of a user.",
        SUBSCRIBE_BODY,
        BATCH,
        body_optional=True,
        takes_instead=Takes.WAIT,
        operation="take_user_messages",
    ),
    Route(
        method="GET",
        path=USER_CHANNEL + "/peek",
        access=own_data(CHANNEL_READ),
        handler=channel_endpoints.peek_messages,
        tag=TAG,
        summary="Look at the messages of a user; no cursor moves.",
        response=PEEKED,
        query=(FROM_CURSOR, MAX_MESSAGES, ORDER, TENANT),
        refusal_statuses=(400, 404, 503),
        operation="peek_user_messages",
    ),
    _write(
        USER_CHANNEL + "/ack",
        own_data(CHANNEL_READ),
        channel_endpoints.acknowledge_messages,
        "Move a cursor of a user forward.",
        ACK_BODY,
        ACKNOWLEDGED,
        operation="acknowledge_user_messages",
    ),
    Route(
        method="GET",
        path="/v1/agents/{agent_name:path}/channels",
        access=requires(CHANNEL_READ),
        handler=channel_endpoints.list_agent_cursors,
        tag=TAG,
        summary="List the cursors of an agent in channels of the scope agent.",
        response=NamedSchema(name="AgentCursors", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(503,),
    ),
)
