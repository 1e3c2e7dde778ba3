"""Methods of MCP's events: list, poll, a stream of one subscription, and requests to an address. Forms only.

    active      the subscription stands, from this cursor on
    event       an event, with the cursor behind it
    heartbeat   nothing has happened, and this is the cursor now
    a result    the stream is over: its client opens another one with its cursor

A stream ends after a while, so that the client's token is looked at again.

Before: endpoint.py. After: event_operations.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from loomlog.services.api.mcp.event_operations import (
    EXHAUSTED,
    FORBIDDEN,
    NEXT_POLL_MS,
    NOT_FOUND,
    OF_FAMILIES,
    POLL,
    SUBSCRIBE,
    TYPES,
    UNSUBSCRIBE,
    WEBHOOK,
    EventPage,
    EventPoll,
    EventRefused,
    EventSubscribed,
    EventUnsubscribed,
    check_arguments,
    event_json,
)
from loomlog.services.api.mcp.message_stream import Messages
from loomlog.services.api.mcp.messages import Message, RpcError, notification, result_message
from loomlog.services.api.mcp.requests import McpRequests
from loomlog.services.api.mcp.server import McpServer, refused_request
from loomlog.services.application.application import Application
from loomlog.services.application.event_webhooks import occurrence_json
from loomlog.services.application.resources import clock_ms
from loomlog.services.application.streaming.run_feed import FeedCursor, RunEventFilter
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.event_types import Arguments, EventType
from loomlog.services.core.operation_input import parse_input
from loomlog.services.core.refusals import Refused

HEARTBEAT_S = 15.0
LIFETIME_S = 30 * 60.0
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"


def list_events(server: McpServer, *, sends: bool) -> dict[str, Any]:
    """Return the event types; there is one page. `sends`: events can be sent to an address."""
    events = [
        {
            "name": name,
            "delivery": ["poll", "push", *([WEBHOOK] if sends and name not in OF_FAMILIES else [])],
            **described,
        }
        for name, described in TYPES.items()
    ]
    return {**server.complete(is_cached=True), "events": events}


async def poll_events(server: McpServer, requests: McpRequests, caller: Caller, message: Message) -> dict[str, Any]:
    """Return the events after a cursor. Raises RpcError."""
    try:
        page: EventPage = (await requests.request(POLL, caller, _fields(message))).value
    except Refused as refused:
        raise event_error(refused, message) from refused
    return {
        **server.complete(),
        "events": page.events,
        "cursor": page.cursor,
        "truncated": page.truncated,
        "hasMore": page.has_more,
        "nextPollMs": NEXT_POLL_MS,
    }


async def subscribe(server: McpServer, requests: McpRequests, caller: Caller, message: Message) -> dict[str, Any]:
    """Answer events/subscribe. Raises RpcError."""
    try:
        subscribed: EventSubscribed = (await requests.request(SUBSCRIBE, caller, _fields(message))).value
    except Refused as refused:
        raise event_error(refused, message) from refused
    return {
        **server.complete(),
        "id": subscribed.id,
        "refreshBefore": subscribed.refresh_before,
        "cursor": subscribed.cursor,
        "truncated": False,
        "deliveryStatus": {"active": True, "lastError": subscribed.last_error or None},
    }


async def unsubscribe(server: McpServer, requests: McpRequests, caller: Caller, message: Message) -> dict[str, Any]:
    """Answer events/unsubscribe. Raises RpcError."""
    try:
        ended: EventUnsubscribed = (await requests.request(UNSUBSCRIBE, caller, _fields(message))).value
    except Refused as refused:
        raise event_error(refused, message) from refused
    if not ended.existed:
        text = "there is no subscription with this name, these arguments and this address"
        raise RpcError(NOT_FOUND, text, data={"kind": "subscription"}, request_id=message.id)
    return server.complete()


async def stream_events(
    application: Application, requests: McpRequests, caller: Caller, message: Message, server: McpServer
) -> Messages:
    """Return the messages of a subscription, once it stands. Raises RpcError."""
    try:
        asked = parse_input(EventPoll, _fields(message), code="bad_request")
        arguments = check_arguments(asked.name, asked.arguments)
        # The same checks as of a poll: access, cursor, and the cursor of now where none is named.
        first: EventPage = (await requests.request(POLL, caller, {**_fields(message), "maxEvents": 1})).value
    except Refused as refused:
        raise event_error(refused, message) from refused
    cursor = first.cursor if asked.cursor is None else asked.cursor
    if (of_family := OF_FAMILIES.get(asked.name)) is not None:
        events = _family_events(application, of_family, _Following(caller, of_family, arguments, cursor))
    else:
        oldest_ms = 0 if asked.maxAgeMs is None else clock_ms() - asked.maxAgeMs
        criteria = RunEventFilter(type=asked.name, **arguments)
        events = _run_events(application, caller, criteria, cursor, oldest_ms)
    return _messages(events, message, cursor, server, is_truncated=first.truncated)


async def _messages(
    events: AsyncGenerator[Mapping[str, Any] | str, None],
    message: Message,
    cursor: str,
    server: McpServer,
    *,
    is_truncated: bool,
) -> Messages:
    meta = {SUBSCRIPTION_KEY: message.id}

    def tell(kind: str, **params: Any) -> dict[str, Any]:
        return notification(f"notifications/events/{kind}", {**params, "_meta": meta})

    yield tell("active", cursor=cursor, truncated=is_truncated)
    try:
        async with asyncio.timeout(LIFETIME_S), aclosing(events):
            async for event in events:
                yield tell("heartbeat", cursor=event) if isinstance(event, str) else tell("event", **event)
    except TimeoutError:
        pass
    except Refused as refused:
        error = event_error(refused, message)
        yield tell("error", error={"code": error.code, "message": error.message, "data": error.data})
    result = server.complete()
    yield result_message(message.id, {**result, "_meta": {**result["_meta"], **meta}})


async def _run_events(
    application: Application, caller: Caller, criteria: RunEventFilter, cursor: str, oldest_ms: int
) -> AsyncGenerator[Mapping[str, Any] | str, None]:
    stream = application.run_feed.follow(caller, criteria, FeedCursor.parse(cursor), oldest_ms=oldest_ms)
    clock = asyncio.get_running_loop().time
    told_at = clock()
    try:
        while (events := await stream.next(max(0.0, told_at + HEARTBEAT_S - clock()))) is not None:
            for event in events:
                yield occurrence_json(event)
            if not events and clock() < told_at + HEARTBEAT_S:
                continue
            told_at = clock()
            if not events:
                yield stream.cursor.encode()
    finally:
        stream.close()


class _Following:
    """Protocol EndpointRequest: asks for the events of a subscription after a cursor."""

    brings_token = True

    def __init__(self, caller: Caller, of: EventType, arguments: Arguments, cursor: str) -> None:
        self.caller = caller
        self.arguments = arguments
        self.path = of.path(arguments)
        self.headers = {"last-event-id": cursor}

    def flag(self, name: str) -> bool:
        return False

    def text(self, name: str) -> str:
        return self.arguments.get(name, "")

    def tenant(self) -> str:
        return self.caller.tenant

    async def body(self, limit: int) -> bytes:
        return b""

    async def identify(self) -> Caller:
        return self.caller


async def _family_events(
    application: Application, of: EventType, request: _Following
) -> AsyncGenerator[Mapping[str, Any] | str, None]:
    stream = await application.open_stream(of.follow, request)
    cursor = request.headers["last-event-id"]
    try:
        while (events := await stream.events()) is not None:
            for event in events:
                cursor = event.id
                shown = event_json(of, request.arguments, msgspec.json.decode(event.data, type=of.record))
                yield {**shown, "cursor": cursor}
            if not events:
                yield cursor
    finally:
        stream.close()


def _fields(message: Message) -> dict[str, Any]:
    return {name: value for name, value in message.params.items() if name != "_meta"}


def event_error(refused: Refused, message: Message) -> RpcError:
    """Return a refusal in the extension's words."""
    error = refused_request(refused, message)
    cause = refused if refused.__cause__ is None else refused.__cause__
    if isinstance(cause, EventRefused):
        error.code, error.data = cause.number, cause.data
    elif refused.code == "share_exhausted":
        error.code, error.data = EXHAUSTED, {"limit": "subscriptions", "max": refused.details.get("limit")}
    elif refused.code in ("insufficient_scope", "forbidden"):
        error.code = FORBIDDEN
    return error
