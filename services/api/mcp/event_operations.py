"""Event types of MCP, and the events after a cursor: of runs from the log, of a channel from its messages.

    run.started, run.ended, run.waiting    what happens to runs
    question.asked, question.closed        what runs ask people
    channel.message                        messages of a channel; no cursor of a reader moves

An event is delivered again under the id that it had, so a client drops what it has already.

Before: events.py. After: services/application/streaming/run_feed.py, services/families/channel/api.py.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.application.application import Application, clock_ms
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import bad_request
from loomlog.services.application.streaming.run_feed import (
    ANSWERED,
    ASKED,
    ENDED,
    STARTED,
    WAITS,
    FeedCursor,
    RunEventFilter,
    RunOccurrence,
)
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.operations import Answer, AnyOperation, Call, Effect, Handlers, Input, Operation, Output
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.api import PEEK, ChannelMessage

EVENTS_DEFAULT, EVENTS_MAX = 100, 500
NEXT_POLL_MS = 1_000
MESSAGE = "channel.message"
CHARACTERS_MAX = 256
_TEXT = {"type": "string", "maxLength": CHARACTERS_MAX}
_FILTER = {
    "type": "object",
    "properties": {
        "run_id": {**_TEXT, "description": "Only of this run."},
        "session_id": {**_TEXT, "description": "Only of runs of this session."},
        "agent": {**_TEXT, "description": "Only of runs of this agent."},
        "user_id": {**_TEXT, "description": "Only of runs of this end user."},
    },
    "additionalProperties": False,
}
_CHANNEL = {
    "type": "object",
    "properties": {
        "channel": {**_TEXT, "description": "Name of the channel."},
        "scope": {**_TEXT, "description": "global, tenant, agent or user; absent: that of the channel."},
        "scope_id": {**_TEXT, "description": "Whose queue it is, in a channel with several."},
    },
    "required": ["channel"],
    "additionalProperties": False,
}
_RUN = {name: {"type": "string"} for name in ("run_id", "agent_id", "session_id", "agent", "user_id", "tenant_id")}
_OPTIONAL = {"type": ["string", "null"]}


def _payload(required: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **more}, "required": list(required)}


TYPES: Mapping[str, Mapping[str, Any]] = {
    STARTED: {
        "description": "A run has started.",
        "inputSchema": _FILTER,
        "payloadSchema": _payload(_RUN, parent_run_id=_OPTIONAL, interactive={"type": "boolean"}),
    },
    ENDED: {
        "description": "A run has completed, failed or was cancelled.",
        "inputSchema": _FILTER,
        "payloadSchema": _payload(
            {**_RUN, "status": {"type": "string", "enum": ["completed", "failed", "cancelled"]}},
            stop_reason=_OPTIONAL,
            error=_OPTIONAL,
            error_code=_OPTIONAL,
            iterations={"type": "integer"},
        ),
    },
    WAITS: {
        "description": "A run waits: for the next text of its user, for the end of a pause, or for its release.",
        "inputSchema": _FILTER,
        "payloadSchema": _payload(
            {**_RUN, "reason": {"type": "string", "enum": ["input", "pause", "quarantine"]}}, error=_OPTIONAL
        ),
    },
    ASKED: {
        "description": "A run asks a person, and waits for the answer: interruption_resolve gives it.",
        "inputSchema": _FILTER,
        "payloadSchema": _payload(
            {**_RUN, "interrupt_id": {"type": "string"}, "question": {"type": "string"}},
            options={"type": "array", "items": {"type": "string"}},
            context=_OPTIONAL,
            expires_at={"type": "string"},
        ),
    },
    ANSWERED: {
        "description": "A question was answered or declined, or its time is over.",
        "inputSchema": _FILTER,
        "payloadSchema": _payload({**_RUN, "interrupt_id": {"type": "string"}, "status": {"type": "string"}}),
    },
    MESSAGE: {
        "description": "A message was published to a channel.",
        "inputSchema": _CHANNEL,
        "payloadSchema": _payload({"channel": {"type": "string"}, "id": {"type": "string"}, "value": {}}),
    },
}
"""The event types by name."""

Name = Annotated[str, Meta(max_length=CHARACTERS_MAX, description="Name of the event type.")]
Arguments = Annotated[dict[str, Any], Meta(description="What narrows the subscription.")]
Cursor = Annotated[str | None, Meta(description="Cursor of the last answer; null: from now on.")]
MaxAge = Annotated[
    Annotated[int, Meta(ge=0, le=10**15)] | None, Meta(description="Leave out what is older than so many milliseconds.")
]


class EventPoll(Input, frozen=True, kw_only=True):
    """The events of a subscription after a cursor."""

    name: Name
    arguments: Arguments = {}  # noqa: RUF012 (msgspec copies it)
    cursor: Cursor = None
    maxAgeMs: MaxAge = None  # noqa: N815 (the protocol's name)
    maxEvents: Annotated[  # noqa: N815 (the protocol's name)
        int, Meta(ge=1, le=EVENTS_MAX, description="Most events of one answer.")
    ] = EVENTS_DEFAULT


class EventPage(Output, frozen=True, kw_only=True):
    """Events, and where to go on."""

    events: Annotated[list[dict[str, Any]], Meta(description="The events, in the form of the protocol.")]
    cursor: Annotated[str, Meta(description="Behind the last event.")]
    truncated: Annotated[bool, Meta(description="Older events are left out.")] = False
    has_more: Annotated[bool, Meta(description="More events are there already.")] = False


POLL = Operation(
    name="event.poll",
    summary="Read the events of a subscription after a cursor; nothing is remembered.",
    input=EventPoll,
    output=EventPage,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
)
OPERATIONS: tuple[AnyOperation, ...] = (POLL,)


class NoSuchEvent(Refused):
    """There is no event type of that name."""

    def __init__(self, name: str) -> None:
        super().__init__("not_found", f"there is no event type {name[:80]!r}: expected one of {', '.join(TYPES)}")


class EventOperations:
    """The handlers. All raise Refused; NoSuchEvent for an unknown type."""

    def __init__(self, application: Application, dispatch: Callable[[AnyOperation], Dispatch]) -> None:
        self._application = application
        self._dispatch = dispatch

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {POLL: self.poll}

    async def poll(self, call: Call[EventPoll]) -> Answer[EventPage]:
        """Return the events after a cursor."""
        asked = call.input
        arguments = check_arguments(asked.name, asked.arguments)
        if asked.name == MESSAGE:
            return Answer(value=await self._poll_channel(call, arguments))
        feed, criteria = self._application.run_feed, RunEventFilter(type=asked.name, **arguments)
        if asked.cursor is None:
            return Answer(value=EventPage(events=[], cursor=feed.now().encode()))
        cursor = FeedCursor.parse(asked.cursor)
        await feed.check(cursor)
        oldest_ms = 0 if asked.maxAgeMs is None else clock_ms() - asked.maxAgeMs
        page = await feed.read(call.principal, criteria, cursor, limit=asked.maxEvents, oldest_ms=oldest_ms)
        answer = EventPage(
            events=[run_event_json(event, with_cursor=False) for event in page.events],
            cursor=page.cursor.encode(),
            truncated=page.is_truncated,
            has_more=page.has_more,
        )
        return Answer(value=answer)

    async def _poll_channel(self, call: Call[EventPoll], arguments: Mapping[str, str]) -> EventPage:
        asked = call.input
        fields: dict[str, Any] = {**arguments, "max_messages": asked.maxEvents, "from_cursor": asked.cursor or ""}
        if asked.cursor is None:
            fields |= {"order": "newest", "max_messages": 1}
        answer = await self._dispatch(PEEK).request(PEEK, call.principal, fields)
        messages: list[ChannelMessage] = answer.value.messages
        cursor = str(messages[-1].cursor) if messages else asked.cursor or ""
        if asked.cursor is None:
            return EventPage(events=[], cursor=cursor)
        events = [message_json(arguments["channel"], message) for message in messages]
        return EventPage(events=events, cursor=cursor, has_more=len(messages) >= asked.maxEvents)


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a subscription. Raises Refused: bad_request, NoSuchEvent."""
    if name not in TYPES:
        raise NoSuchEvent(name)
    schema = TYPES[name]["inputSchema"]
    known = schema["properties"]
    for key, value in arguments.items():
        if key not in known:
            raise bad_request(f"arguments: {key[:60]!r} is unknown; expected are {', '.join(known)}")
        if not isinstance(value, str) or len(value) > CHARACTERS_MAX:
            raise bad_request(f"arguments.{key}: expected text of at most {CHARACTERS_MAX} characters")
    for key in schema.get("required", ()):
        if not arguments.get(key):
            raise bad_request(f"arguments.{key} is required")
    return dict(arguments)


def run_event_json(event: RunOccurrence, *, with_cursor: bool = True) -> dict[str, Any]:
    """Return an event of a run in the form of the protocol; a page has one cursor for all."""
    shown = {"eventId": event.id, "name": event.type, "timestamp": event.at, "data": dict(event.data)}
    return {**shown, "cursor": event.cursor} if with_cursor else shown


def message_json(channel: str, message: ChannelMessage) -> dict[str, Any]:
    """Return a message of a channel in the form of the protocol."""
    position: str | UnsetType = message.position
    return {
        "eventId": message.id if position is UNSET else position,
        "name": MESSAGE,
        "timestamp": message.published_at,
        "data": {"channel": channel, "id": message.id, "value": message.value},
    }
