"""The operations of channels: declarations, messages, waiting, and what operators see. Pure.

The declared scope of a channel decides which queue an operation is for, whichever way it came. The routes of a user are
for channels of the scope user; the others take `scope_id` for the user or the agent, which agents never name.

Before: __init__.py. After: handlers.py carries them out.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, structs

from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import ADMIN, CHANNEL_PUBLISH, CHANNEL_READ, TENANT
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.operations import (
    PRINTABLE,
    Effect,
    Http,
    Input,
    McpTool,
    NoInput,
    NoOutput,
    Operation,
    Output,
    Tag,
    Tool,
    ToolOperation,
)
from loomlog.services.core.times import format_ns
from loomlog.services.families.channel.cursor import published_ns
from loomlog.services.families.channel.limits import (
    CHANNELS_MAX,
    CURSOR_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    READ,
    READ_MAX,
    READER_CHARACTERS_MAX,
    WAIT_ASKED_MS_MAX,
)

TAG = Tag(name="Channels", description="Messages between agents, and between agents and the outside.")
TOOL = Tool(
    name="Channel",
    description=(
        "Messages between agents and applications. op publish sends a JSON value to a channel, broadcast to several; "
        "subscribe takes the next messages and waits up to wait_ms for one; peek reads without taking; await waits "
        "until any, all or at_least n messages of several channels are there and takes none; ack moves the cursor past "
        "messages that were peeked; list_channels tells which channels this agent may use."
    ),
    usage_hint="hand work to other agents and wait for theirs; list_channels tells which channels there are",
)
QUEUES_DEFAULT, QUEUES_MAX = 50, 200
OF_OPERATORS = ("scope", "scope_id", "user_id")
"""Fields that no agent gives: its own user and name decide."""
CHANNELS = "/v1/_channels"
CHANNEL = CHANNELS + "/{name:path}"
USER_CHANNEL = "/v1/users/{user_id}/channels/{name:path}"
NAME = {"channel": "name"}
"""The routes call a channel by the parameter `name`."""

# --- fields ----------------------------------------------------------------------------------------------------------

Name = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE, description="Name of the channel."),
]
Names = Annotated[
    list[Name], Meta(min_length=1, max_length=CHANNELS_MAX, description=f"Names of channels, at most {CHANNELS_MAX}.")
]
Value = Annotated[Any, Meta(description="Any JSON value but null, at most 64 KiB.")]
Ttl = Annotated[
    int | float | str | None,
    Meta(description="Seconds, or a duration such as 1h, until it is gone; absent: as declared."),
]
DeliverAt = Annotated[str, Meta(description="When it becomes visible, RFC 3339, at most 30 days ahead.")]
ScopeId = Annotated[str, Meta(description="The user or the agent, of a channel with that scope.")]
UserId = Annotated[str, Meta(description="The user whose channel it is, of the routes of a user.")]
Scope = Annotated[str, Meta(description="The scope that they are declared with; absent: whatever it is.")]
FromCursor = Annotated[
    str,
    Meta(
        max_length=CURSOR_CHARACTERS_MAX,
        pattern=PRINTABLE,
        description="Read after this cursor; cur_0 is before the oldest message.",
    ),
]
MaxMessages = Annotated[int, Meta(ge=1, le=READ_MAX, description=f"Most messages, 1 to {READ_MAX}.")]
WaitMs = Annotated[
    int,
    Meta(
        ge=0,
        le=WAIT_ASKED_MS_MAX,
        description="Milliseconds to wait for a message; `wait_capped_ms` tells of a cap that applied.",
    ),
]
Reader = Annotated[
    str,
    Meta(
        max_length=READER_CHARACTERS_MAX,
        pattern=PRINTABLE,
        description="Name of a cursor of one's own; absent: that of all others.",
    ),
]
Time = Annotated[str, Meta(description="RFC 3339, with nanoseconds.")]


class ChannelPublish(Input, frozen=True, kw_only=True):
    channel: Name
    value: Value
    deliver_at: DeliverAt = ""
    ttl: Ttl = None
    scope: Scope = ""
    scope_id: ScopeId = ""
    user_id: UserId = ""


class ChannelSubscribe(Input, frozen=True, kw_only=True):
    channel: Name
    from_cursor: FromCursor = ""
    max_messages: MaxMessages = READ
    wait_ms: WaitMs = 0
    reader: Reader = ""
    scope: Scope = ""
    scope_id: ScopeId = ""
    user_id: UserId = ""


class ChannelPeek(Input, frozen=True, kw_only=True):
    channel: Name
    from_cursor: FromCursor = ""
    max_messages: MaxMessages = READ
    order: Annotated[
        Literal["oldest", "newest"], Meta(description="newest: the messages before from_cursor, the newest first.")
    ] = "oldest"
    scope: Scope = ""
    scope_id: ScopeId = ""
    user_id: UserId = ""


class ChannelAck(Input, frozen=True, kw_only=True):
    channel: Name
    cursor: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=CURSOR_CHARACTERS_MAX,
            pattern=PRINTABLE,
            description="Cursor behind the last message that is done with.",
        ),
    ]
    reader: Reader = ""
    scope: Scope = ""
    scope_id: ScopeId = ""
    user_id: UserId = ""


class ChannelAwait(Input, frozen=True, kw_only=True):
    channels: Names
    scope: Scope = ""
    scope_id: ScopeId = ""
    mode: Annotated[
        Literal["any", "all", "at_least"],
        Meta(description="When it ends: with messages in any or all channels, or with n messages of all together."),
    ] = "any"
    n: Annotated[int, Meta(ge=0, le=READ_MAX * CHANNELS_MAX, description="For at_least: how many messages.")] = 0
    from_cursor: FromCursor = ""
    max_messages: MaxMessages = READ
    wait_ms: WaitMs = 0


class ChannelBroadcast(Input, frozen=True, kw_only=True):
    channels: Names
    value: Value
    scope: Scope = ""
    scope_id: ScopeId = ""
    deliver_at: DeliverAt = ""
    ttl: Ttl = None


class ChannelNamed(Input, frozen=True, kw_only=True):
    channel: Name


class ChannelListQueues(Input, frozen=True, kw_only=True):
    channel: Name
    limit: Annotated[int, Meta(ge=1, le=QUEUES_MAX, description="Most entries of one answer.")] = QUEUES_DEFAULT
    cursor: Annotated[
        str, Meta(max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE, description="`next` of an earlier answer.")
    ] = ""


class ChannelListReaders(Input, frozen=True, kw_only=True):
    channel: Name
    scope_id: ScopeId = ""


class AgentListCursors(Input, frozen=True, kw_only=True):
    agent: Annotated[str, Meta(description="Name of the agent.")]


Description = Annotated[str | None, Meta(description="What the channel is for.")]
Semantic = Annotated[str | None, Meta(description="For people: queue, topic or broadcast.")]
DefaultTtl = Annotated[
    int | float | str | None,
    Meta(description="Seconds, or a duration such as 7d, that messages are kept; 0: for ever."),
]
MessagesKept = Annotated[int | None, Meta(description="Messages that a queue keeps; 0: any number.")]


class ChannelCreate(Input, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="1 to 128 letters, digits, _ and -.")]
    scope: Annotated[str | None, Meta(description="tenant, user or agent; global is for administrators.")] = None
    description: Description = None
    semantic: Semantic = None
    default_ttl: DefaultTtl = None
    max_messages: MessagesKept = None
    publisher: Annotated[
        str | None, Meta(description="system: only the runtime and administrators publish; any: all tenants.")
    ] = None
    period: Annotated[
        int | float | str | None, Meta(description="Time between two messages of the system: seconds, or 1h.")
    ] = None


class ChannelUpdate(Input, frozen=True, kw_only=True):
    channel: Name
    description: Description = None
    semantic: Semantic = None
    default_ttl: DefaultTtl = None
    max_messages: MessagesKept = None


# --- answers ---------------------------------------------------------------------------------------------------------


class Channel(Output, frozen=True, kw_only=True):
    """A channel with what its queues hold; the times are absent without messages."""

    name: str
    description: str
    scope: str
    semantic: str
    publisher: str
    period: str
    default_ttl: int
    max_messages: int
    source: Annotated[str, Meta(description="yaml, runtime, system, or orphan: its declaration is deleted.")]
    message_count: int = 0
    oldest_visible_at: Time | UnsetType = UNSET
    newest_visible_at: Time | UnsetType = UNSET


class Channels(Output, frozen=True, kw_only=True):
    channels: list[Channel]


class Published(Output, frozen=True, kw_only=True):
    message_id: str
    channel: str
    dropped_oldest: Annotated[int, Meta(description="Messages that made room for it.")] = 0
    visible_at: Time | UnsetType = UNSET


class ChannelPublished(Output, frozen=True, kw_only=True):
    """Answer of the routes, in the form that clients of the original know."""

    msg_id: str
    channel: str
    created_at: Time
    visible_at: Time | UnsetType = UNSET
    dropped_oldest: int | UnsetType = UNSET


class ChannelMessage(Output, frozen=True, kw_only=True):
    id: str
    value: Any
    published_at: Time
    redelivered: Annotated[bool, Meta(description="It was given to this reader before.")] | UnsetType = UNSET
    attempt: Annotated[int, Meta(description="How often, this time included.")] | UnsetType = UNSET
    cursor: Annotated[str, Meta(description="Cursor behind it; only where no cursor moves.")] | UnsetType = UNSET
    position: Annotated[str, Meta(description="Position of its event in the log.")] | UnsetType = UNSET


class ChannelBatch(Output, frozen=True, kw_only=True):
    channel: str
    messages: list[ChannelMessage]
    next_cursor: str
    wait_capped_ms: int | UnsetType = UNSET


class ChannelMessages(Output, frozen=True, kw_only=True):
    channel: str
    messages: list[ChannelMessage]
    next_cursor: str | UnsetType = UNSET


class ChannelAcknowledged(Output, frozen=True, kw_only=True):
    ok: bool


class ChannelResult(Output, frozen=True, kw_only=True):
    messages: list[ChannelMessage]
    next_cursor: str


class ChannelAwaited(Output, frozen=True, kw_only=True):
    satisfied: bool
    timed_out: bool
    mode: str
    fired: Annotated[list[str], Meta(description="The channels that have messages.")]
    results: Annotated[dict[str, ChannelResult], Meta(description="By channel.")]
    total_messages: int
    wait_capped_ms: int | UnsetType = UNSET


class BroadcastRow(Output, frozen=True, kw_only=True):
    """What became of one channel: a message, or an error."""

    channel: str
    message_id: str | UnsetType = UNSET
    dropped_oldest: int | UnsetType = UNSET
    visible_at: Time | UnsetType = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class ChannelBroadcasted(Output, frozen=True, kw_only=True):
    published: int
    failed: int
    results: list[BroadcastRow]


class ChannelGrants(Output, frozen=True, kw_only=True):
    publish: Annotated[list[str], Meta(description="Patterns of the channels that the agent may publish to.")]
    subscribe: Annotated[list[str], Meta(description="Patterns of the channels that it may read.")]


class QueueRow(Output, frozen=True, kw_only=True):
    """What a queue holds, and who reads it; a time is absent when there is none."""

    scope: str
    scope_id: str
    message_count: int
    delayed: int
    leased: int
    waiting: int
    awaiting: int
    readers_count: int
    published: Annotated[int, Meta(description="Messages since its first one.")]
    oldest_visible_at: Time | UnsetType = UNSET
    newest_visible_at: Time | UnsetType = UNSET
    next_visible_at: Annotated[str, Meta(description="When the next delayed one is.")] | UnsetType = UNSET


class ChannelQueues(Output, frozen=True, kw_only=True):
    channel: str
    scope: str
    queues: list[QueueRow]
    next: Annotated[str | None, Meta(description="Cursor of the following page.")]


class ReaderRow(Output, frozen=True, kw_only=True):
    channel: str
    scope: str
    scope_id: str
    reader: Annotated[str, Meta(description="Empty: the shared one.")]
    cursor: Annotated[str, Meta(description="Empty when its message is gone.")]
    behind: Annotated[int, Meta(description="Messages that it has not read.")]
    waiting: int | UnsetType = UNSET
    leased: int | UnsetType = UNSET


class ChannelReaders(QueueRow, frozen=True, kw_only=True):
    channel: str
    readers: list[ReaderRow]


class AgentCursors(Output, frozen=True, kw_only=True):
    agent: str
    channels: list[ReaderRow]


class ChannelPurged(Output, frozen=True, kw_only=True):
    name: str
    purged: Annotated[int, Meta(description="Messages that were removed.")]


def to_channel_published(published: Published) -> ChannelPublished:
    """Return the answer of a publish as the routes show it."""
    return ChannelPublished(
        msg_id=published.message_id,
        channel=published.channel,
        created_at=format_ns(published_ns(published.message_id)),
        visible_at=published.visible_at,
        dropped_oldest=published.dropped_oldest or UNSET,
    )


def to_agent_messages(peeked: ChannelMessages) -> ChannelMessages:
    """Return peeked messages as agents see them, who have no use for places."""
    messages = [structs.replace(message, cursor=UNSET, position=UNSET) for message in peeked.messages]
    return ChannelMessages(channel=peeked.channel, messages=messages)


# --- operations ------------------------------------------------------------------------------------------------------

_operation = partial(
    Operation,
    tag=TAG,
    invalid_code="invalid_request",
    field_codes={"scope": "channel_scope_invalid", "scope_id": "channel_scope_invalid", "limit": "bad_request"},
)
_read = partial(_operation, access=requires(CHANNEL_READ), effect=Effect.READ)
_administer = partial(_operation, access=requires(TENANT), effect=Effect.WRITE)
_http = partial(Http, names=NAME, codes={"bad_request": "invalid_body"})


def _of_user(http: Http, route: str, **more: Any) -> Http:
    """Return the route of a user beside that of any channel."""
    body_name = f"User{http.body_name}" if http.body_name else ""
    return replace(http, route=route, without=("scope_id", "scope"), body_name=body_name, **more)


_MCP_NAMES = {"value": "payload"}
_PUBLISH_ROUTE = _http(
    route=f"POST {CHANNEL}/publish",
    id="publish_message",
    names={**NAME, "value": "payload"},
    without=("user_id", "scope"),
    body_name="ChannelPublish",
    output=ChannelPublished,
    answer=to_channel_published,
    example={"payload": {"text": "ready"}},
)
_SUBSCRIBE_ROUTE = _http(
    route=f"POST {CHANNEL}/subscribe",
    id="take_messages",
    without=("user_id", "scope"),
    body_name="ChannelSubscribe",
    body_optional=True,
    example={"max_messages": 10, "wait_ms": 1_000},
)
_PEEK_ROUTE = _http(route=f"GET {CHANNEL}/peek", id="peek_messages", without=("user_id", "scope"))
_ACK_ROUTE = _http(
    route=f"POST {CHANNEL}/ack",
    id="acknowledge_messages",
    without=("user_id", "scope"),
    body_name="ChannelAck",
    example={"cursor": "cur_0"},
)
LIST = _read(
    name="channel.list",
    summary="List the channels by name, with what their queues hold.",
    input=NoInput,
    output=Channels,
    http=(_http(route=f"GET {CHANNELS}", id="list_channels"),),
    mcp=(McpTool(tool="list_channels"), McpTool(tool="context", op="channels")),
)
CREATE = _administer(
    name="channel.create",
    summary="Declare a channel.",
    input=ChannelCreate,
    output=Channel,
    http=(
        _http(
            route=f"POST {CHANNELS}",
            id="create_channel",
            names={},
            status=201,
            example={"name": "reviews", "scope": "tenant", "default_ttl": "7d"},
        ),
    ),
    mcp=(McpTool(tool="channeldef", op="create"),),
)
AWAIT = _operation(
    name="channel.await",
    summary="Wait until channels have messages; no cursor moves.",
    input=ChannelAwait,
    output=ChannelAwaited,
    access=requires(CHANNEL_READ),
    effect=Effect.WAIT,
    http=(
        _http(
            route=f"POST {CHANNELS}/_await",
            id="await_messages",
            example={"channels": ["reviews"], "mode": "any", "wait_ms": 1_000},
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="await", without=OF_OPERATORS),
)
BROADCAST = _operation(
    name="channel.broadcast",
    summary="Publish a value to several channels; if one of them is not allowed, none gets it.",
    input=ChannelBroadcast,
    output=ChannelBroadcasted,
    access=requires(CHANNEL_PUBLISH),
    effect=Effect.WRITE,
    http=(
        _http(
            route=f"POST {CHANNELS}/_broadcast",
            id="broadcast_message",
            names={"value": "payload"},
            example={"channels": ["reviews"], "payload": {"text": "ready"}},
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="broadcast", without=OF_OPERATORS),
    mcp=(McpTool(tool="channel", op="broadcast", names=_MCP_NAMES),),
)
PUBLISH = _operation(
    name="channel.publish",
    summary="Publish a message.",
    input=ChannelPublish,
    output=Published,
    access=requires(CHANNEL_PUBLISH),
    effect=Effect.WRITE,
    http=(
        _PUBLISH_ROUTE,
        _of_user(
            _PUBLISH_ROUTE,
            f"POST {USER_CHANNEL}/publish",
            id="publish_user_message",
            summary="Publish a message to a user.",
            access=own_data(CHANNEL_PUBLISH),
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="publish", without=OF_OPERATORS),
    mcp=(
        McpTool(tool="channel", op="publish", names=_MCP_NAMES, without=("user_id",)),
        McpTool(tool="publish_channel", names=_MCP_NAMES, without=("user_id",)),
    ),
)
SUBSCRIBE = _operation(
    name="channel.subscribe",
    summary="Take the next messages; with an Idempotency-Key a repeated request gets the same ones.",
    input=ChannelSubscribe,
    output=ChannelBatch,
    access=requires(CHANNEL_READ),
    effect=Effect.WAIT,
    http=(
        _SUBSCRIBE_ROUTE,
        _of_user(
            _SUBSCRIBE_ROUTE,
            f"POST {USER_CHANNEL}/subscribe",
            id="take_user_messages",
            summary="Take the next messages of a user.",
            access=own_data(CHANNEL_READ),
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="subscribe", without=OF_OPERATORS),
    mcp=(McpTool(tool="subscribe_channel", without=("user_id",)),),
)
PEEK = _read(
    name="channel.peek",
    summary="Look at messages; no cursor moves.",
    input=ChannelPeek,
    output=ChannelMessages,
    http=(
        _PEEK_ROUTE,
        _of_user(
            _PEEK_ROUTE,
            f"GET {USER_CHANNEL}/peek",
            id="peek_user_messages",
            summary="Look at the messages of a user; no cursor moves.",
            access=own_data(CHANNEL_READ),
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="peek", without=(*OF_OPERATORS, "order"), answer=to_agent_messages),
    mcp=(McpTool(tool="peek_channel", without=("user_id",)),),
)
LIST_QUEUES = _read(
    name="channel.queues",
    summary="List the queues of a channel, one for each user or agent, with what they hold.",
    input=ChannelListQueues,
    output=ChannelQueues,
    http=(_http(route=f"GET {CHANNEL}/queues", id="list_channel_queues"),),
)
LIST_READERS = _read(
    name="channel.readers",
    summary="List the cursors of a queue, how far each is behind, and what is leased to it.",
    input=ChannelListReaders,
    output=ChannelReaders,
    http=(_http(route=f"GET {CHANNEL}/readers", id="list_channel_readers"),),
)
ACK = _operation(
    name="channel.ack",
    summary="Move a cursor forward.",
    input=ChannelAck,
    output=ChannelAcknowledged,
    access=requires(CHANNEL_READ),
    effect=Effect.WRITE,
    http=(
        _ACK_ROUTE,
        _of_user(
            _ACK_ROUTE,
            f"POST {USER_CHANNEL}/ack",
            id="acknowledge_user_messages",
            summary="Move a cursor of a user forward.",
            access=own_data(CHANNEL_READ),
        ),
    ),
    tool=ToolOperation(tool=TOOL.name, op="ack", without=OF_OPERATORS),
    mcp=(McpTool(tool="ack_channel", without=("user_id",)),),
)
LIST_GRANTS = _read(
    name="channel.grants",
    summary="Tell which channels the agent may use.",
    input=NoInput,
    output=ChannelGrants,
    tool=ToolOperation(tool=TOOL.name, op="list_channels"),
)
PURGE = _administer(
    name="channel.purge",
    summary="Remove the messages of all queues of a channel; cursors stay.",
    input=ChannelNamed,
    output=ChannelPurged,
    http=(_http(route=f"POST {CHANNEL}/purge", id="purge_channel"),),
    mcp=(McpTool(tool="channeldef", op="purge", names={"channel": "name"}),),
)
PUBLISH_SYSTEM = _operation(
    name="channel.publish_system",
    summary="Publish to a channel of the system (`_system/...`); for administrators.",
    input=ChannelPublish,
    output=Published,
    access=requires(ADMIN),
    effect=Effect.WRITE,
    is_act=False,  # a message, as those of members
    http=(replace(_PUBLISH_ROUTE, route=f"POST {CHANNEL}", id="publish_system_message"),),
)
UPDATE = _administer(
    name="channel.update",
    summary="Change a channel that was declared at run time.",
    input=ChannelUpdate,
    output=Channel,
    http=(_http(route=f"PATCH {CHANNEL}", id="update_channel", example={"description": "Findings to be reviewed"}),),
    mcp=(McpTool(tool="channeldef", op="update", names={"channel": "name"}),),
)
DELETE = _administer(
    name="channel.delete",
    summary="Delete the declaration of a channel; its messages stay until they expire.",
    input=ChannelNamed,
    output=NoOutput,
    http=(_http(route=f"DELETE {CHANNEL}", id="delete_channel", status=204),),
    mcp=(McpTool(tool="channeldef", op="delete", names={"channel": "name"}),),
)
LIST_AGENT_CURSORS = _read(
    name="channel.agent_cursors",
    summary="List the cursors of an agent in channels of the scope agent.",
    input=AgentListCursors,
    output=AgentCursors,
    http=(
        _http(
            route="GET /v1/agents/{agent_name:path}/channels", id="list_agent_cursors", names={"agent": "agent_name"}
        ),
    ),
)
OPERATIONS = (
    LIST,
    CREATE,
    AWAIT,
    BROADCAST,
    PUBLISH,
    SUBSCRIBE,
    PEEK,
    LIST_QUEUES,
    LIST_READERS,
    ACK,
    LIST_GRANTS,
    PURGE,
    PUBLISH_SYSTEM,
    UPDATE,
    DELETE,
    LIST_AGENT_CURSORS,
)
"""In the order in which routes are matched: those with a word behind the name before those of the name itself."""
FOLLOW = Endpoint(
    id="follow_channel",
    route=f"GET {CHANNEL}/stream",
    access=requires(CHANNEL_READ),
    summary="Follow the messages as server-sent events, each with its cursor as id; no cursor moves.",
    tag=TAG,
    query={
        "from_cursor": "Cursor of an earlier answer; cur_0 or absent: before the oldest message.",
        "scope_id": "The user or the agent, of a channel with that scope.",
        "tenant": "Administrators: the tenant whose channels are meant.",
    },
    refusal_statuses=(400, 404, 503),
    unavailable_code="channel_unavailable",
)
ENDPOINTS = (FOLLOW,)
