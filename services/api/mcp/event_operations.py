"""Event types of MCP, and the events after a cursor: of runs from the log, of a channel from its messages.

    run.started, run.ended, run.waiting    what happens to runs
    question.asked, question.closed        what runs ask people
    those of families                      such as the messages of a channel; no cursor of a reader moves

An event is delivered again under the id that it had, so a client drops what it has already.

Before: events.py. After: services/application/streaming/run_feed.py, services/core/event_types.py.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.application import Application
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import bad_request
from loomlog.services.application.event_webhooks import (
    LIFETIME_DEFAULT_S,
    LIFETIME_MAX_S,
    EndpointRefused,
    EventWebhooks,
    occurrence_json,
)
from loomlog.services.application.resources import clock_ms
from loomlog.services.application.streaming.run_feed import (
    ANSWERED,
    ASKED,
    ENDED,
    STARTED,
    WAITS,
    FeedCursor,
    RunEventFilter,
)
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.event_types import Arguments, EventType
from loomlog.services.core.operations import Answer, AnyOperation, Call, Effect, Handlers, Input, Operation, Output
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import all_event_types

NOT_FOUND, FORBIDDEN, EXHAUSTED, UNSUPPORTED, CALLBACK_FAILED = -32023, -32024, -32025, -32026, -32027
"""Codes of the extension."""
EVENTS_DEFAULT, EVENTS_MAX = 100, 500
NEXT_POLL_MS = 1_000
WEBHOOK = "webhook"
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
_RUN = {name: {"type": "string"} for name in ("run_id", "agent_id", "session_id", "agent", "user_id", "tenant_id")}
_OPTIONAL = {"type": ["string", "null"]}


def _payload(required: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **more}, "required": list(required)}


OF_FAMILIES: Mapping[str, EventType] = {one.name: one for one in all_event_types()}
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
    **{
        one.name: {"description": one.description, "inputSchema": one.arguments, "payloadSchema": one.payload}
        for one in OF_FAMILIES.values()
    },
}
"""The event types by name."""

Name = Annotated[str, Meta(max_length=CHARACTERS_MAX, description="Name of the event type.")]
Narrowing = Annotated[dict[str, Any], Meta(description="What narrows the subscription.")]
Cursor = Annotated[str | None, Meta(description="Cursor of the last answer; null: from now on.")]
MaxAge = Annotated[
    Annotated[int, Meta(ge=0, le=10**15)] | None, Meta(description="Leave out what is older than so many milliseconds.")
]


class EventPoll(Input, frozen=True, kw_only=True):
    """The events of a subscription after a cursor."""

    name: Name
    arguments: Narrowing = {}  # noqa: RUF012 (msgspec copies it)
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


class EventDelivery(Input, frozen=True, kw_only=True):
    """Where events are sent."""

    url: Annotated[str, Meta(description="Address that receives them, https.")]
    secret: Annotated[str, Meta(description="Signs them: whsec_ and base64 of 24 to 64 random bytes.")] = ""
    mode: Annotated[str, Meta(description="webhook.")] = WEBHOOK


class EventSubscribe(Input, frozen=True, kw_only=True):
    """A subscription whose events are sent; the same again renews it."""

    name: Name
    delivery: Annotated[EventDelivery, Meta(description="Where they are sent.")]
    arguments: Narrowing = {}  # noqa: RUF012 (msgspec copies it)
    cursor: Cursor = None
    maxAgeMs: MaxAge = None  # noqa: N815 (the protocol's name)
    ttlMs: Annotated[  # noqa: N815 (the protocol's name)
        Annotated[int, Meta(ge=0, le=10**15)] | None, Meta(description="How long it should live; at most a day.")
    ] = LIFETIME_DEFAULT_S * 1_000


class EventUnsubscribe(Input, frozen=True, kw_only=True):
    """A subscription that ends."""

    name: Name
    delivery: Annotated[EventDelivery, Meta(description="Where its events are sent.")]
    arguments: Narrowing = {}  # noqa: RUF012 (msgspec copies it)


class EventSubscribed(Output, frozen=True, kw_only=True):
    """A subscription."""

    id: Annotated[str, Meta(description="Its id, in the header of each delivery.")]
    refresh_before: Annotated[str, Meta(description="When it ends unless it is renewed, RFC 3339.")]
    cursor: Annotated[str, Meta(description="Everything before it was delivered.")]
    last_error: Annotated[str, Meta(description="Category of the last failed delivery; empty: none.")] = ""


class EventUnsubscribed(Output, frozen=True, kw_only=True):
    """The subscription has ended."""

    existed: Annotated[bool, Meta(description="Whether there was one.")]


POLL = Operation(
    name="event.poll",
    summary="Read the events of a subscription after a cursor; nothing is remembered.",
    input=EventPoll,
    output=EventPage,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
)
SUBSCRIBE = Operation(
    name="event.subscribe",
    summary="Have the events of a subscription sent to an address, or renew that.",
    input=EventSubscribe,
    output=EventSubscribed,
    access=own_data(RUNS_READ),
    effect=Effect.WRITE,
)
UNSUBSCRIBE = Operation(
    name="event.unsubscribe",
    summary="End a subscription whose events are sent to an address.",
    input=EventUnsubscribe,
    output=EventUnsubscribed,
    access=own_data(RUNS_READ),
    effect=Effect.WRITE,
)
OPERATIONS: tuple[AnyOperation, ...] = (POLL, SUBSCRIBE, UNSUBSCRIBE)


class EventRefused(Refused):
    """A refusal that the extension has a code for, `number`; `data` is what it says with that code."""

    def __init__(self, code: str, message: str, number: int, data: Mapping[str, Any]) -> None:
        super().__init__(code, message)
        self.number, self.data = number, data


def _unsupported(mode: str, why: str) -> EventRefused:
    """Return the refusal of a way of delivery that there is not."""
    text = f"delivery.mode: {mode[:40]!r} is not possible: {why}"
    return EventRefused("bad_request", text, UNSUPPORTED, {"feature": "deliveryMode", "value": mode[:40]})


class EventOperations:
    """The handlers. All raise Refused."""

    def __init__(self, application: Application, dispatch: Callable[[AnyOperation], Dispatch]) -> None:
        self._application = application
        self._dispatch = dispatch

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {POLL: self.poll, SUBSCRIBE: self.subscribe, UNSUBSCRIBE: self.unsubscribe}

    async def poll(self, call: Call[EventPoll]) -> Answer[EventPage]:
        """Return the events after a cursor."""
        asked = call.input
        arguments = check_arguments(asked.name, asked.arguments)
        if (of_family := OF_FAMILIES.get(asked.name)) is not None:
            return Answer(value=await self._poll_family(of_family, call, arguments))
        feed, criteria = self._application.run_feed, RunEventFilter(type=asked.name, **arguments)
        if asked.cursor is None:
            return Answer(value=EventPage(events=[], cursor=feed.now().encode()))
        cursor = FeedCursor.parse(asked.cursor)
        await feed.check(cursor)
        oldest_ms = 0 if asked.maxAgeMs is None else clock_ms() - asked.maxAgeMs
        page = await feed.read(call.principal, criteria, cursor, limit=asked.maxEvents, oldest_ms=oldest_ms)
        answer = EventPage(
            events=[_without_cursor(occurrence_json(event)) for event in page.events],
            cursor=page.cursor.encode(),
            truncated=page.is_truncated,
            has_more=page.has_more,
        )
        return Answer(value=answer)

    async def subscribe(self, call: Call[EventSubscribe]) -> Answer[EventSubscribed]:
        """Make a subscription, or renew it."""
        asked = call.input
        arguments = check_arguments(asked.name, asked.arguments)
        webhooks = self._webhooks(asked.name, asked.delivery)
        lifetime_ms = LIFETIME_MAX_S * 1_000 if asked.ttlMs is None else asked.ttlMs
        try:
            subscribed = await webhooks.subscribe(
                call.principal,
                asked.name,
                arguments,
                url=asked.delivery.url,
                secret=asked.delivery.secret,
                cursor=asked.cursor,
                lifetime_s=lifetime_ms / 1_000,
            )
        except EndpointRefused as error:
            text = f"delivery.url: the address did not confirm that it wants events: {error.reason}"
            raise EventRefused("bad_request", text, CALLBACK_FAILED, {"reason": error.reason}) from error
        answer = EventSubscribed(
            id=subscribed.id,
            refresh_before=format_rfc3339(subscribed.expires_at_ms),
            cursor=subscribed.cursor,
            last_error=subscribed.error,
        )
        return Answer(value=answer)

    async def unsubscribe(self, call: Call[EventUnsubscribe]) -> Answer[EventUnsubscribed]:
        """End a subscription."""
        asked = call.input
        arguments = check_arguments(asked.name, asked.arguments)
        webhooks = self._webhooks(asked.name, asked.delivery)
        existed = await webhooks.unsubscribe(call.principal, asked.name, arguments, url=asked.delivery.url)
        return Answer(value=EventUnsubscribed(existed=existed))

    def _webhooks(self, name: str, delivery: EventDelivery) -> EventWebhooks:
        webhooks = self._application.event_webhooks
        if webhooks is None:
            raise _unsupported("webhook", "no LOOMLOG_SECRET_KEY is set to seal secrets of subscriptions with")
        if delivery.mode != WEBHOOK or name in OF_FAMILIES:
            raise _unsupported(delivery.mode, f"events of the type {name} are not sent so: poll or stream them")
        return webhooks

    async def _poll_family(self, of: EventType, call: Call[EventPoll], arguments: Arguments) -> EventPage:
        asked = call.input
        fields = of.poll_fields(arguments, asked.cursor, asked.maxEvents)
        answer = await self._dispatch(of.poll).request(of.poll, call.principal, fields)
        records = of.records(answer.value)
        cursor = str(records[-1].cursor) if records else asked.cursor or ""
        if asked.cursor is None:
            return EventPage(events=[], cursor=cursor)
        events = [event_json(of, arguments, record) for record in records]
        return EventPage(events=events, cursor=cursor, has_more=len(records) >= asked.maxEvents)


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a subscription. Raises Refused: bad_request, not_found."""
    if name not in TYPES:
        text = f"there is no event type {name[:80]!r}: expected one of {', '.join(TYPES)}"
        raise EventRefused("not_found", text, NOT_FOUND, {"kind": "event"})
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


def _without_cursor(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of a page, which has one cursor for all."""
    del event["cursor"]
    return event


def event_json(of: EventType, arguments: Arguments, record: Any) -> dict[str, Any]:
    """Return an event of a family in the form of the protocol."""
    form = of.form(arguments, record)
    return {"eventId": form.id, "name": of.name, "timestamp": form.at, "data": form.data}
