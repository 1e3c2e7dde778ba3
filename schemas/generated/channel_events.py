"""Records of the namespace loom.channel.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CallRef, SurfacedMessage
from loomlog.schemas.records import Record


class CursorMoved(Record, frozen=True, kw_only=True):
    """A reader's cursor was set."""

    SCHEMA: ClassVar[str] = "loom.channel.events.CursorMoved"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    cursor: str
    """The new one."""
    position: int
    """Its place."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "reader": self.reader,
            "cursor": self.cursor,
            "position": self.position,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            reader=value["reader"],
            cursor=value["cursor"],
            position=value["position"],
        )


class LeaseReminded(Record, frozen=True, kw_only=True):
    """A run is asked again whether it took the messages of a lease."""

    SCHEMA: ClassVar[str] = "loom.channel.events.LeaseReminded"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    lease_id: str
    """The lease."""
    call: CallRef
    """The call."""
    positions: tuple[int, ...]
    """Their places."""
    until_ms: int
    """When it is asked once more, UTC milliseconds."""
    attempts: tuple[int, ...] = ()
    """How often the reader was given each of them, this time included, in the order of positions; empty: all for
    the first time.
    """

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "lease_id": self.lease_id,
            "call": self.call.to_avro(),
            "positions": self.positions,
            "until_ms": self.until_ms,
            "attempts": self.attempts,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            lease_id=value["lease_id"],
            call=CallRef.from_avro(value["call"]),
            positions=tuple(value["positions"]),
            until_ms=value["until_ms"],
            attempts=tuple(value["attempts"]),
        )


class LeaseSettled(Record, frozen=True, kw_only=True):
    """A lease has ended."""

    SCHEMA: ClassVar[str] = "loom.channel.events.LeaseSettled"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    lease_id: str
    """The lease."""
    taken: int
    """Messages that were taken, from the first on."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""
    returned: tuple[int, ...] = ()
    """Places of those that are visible again."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "lease_id": self.lease_id,
            "reader": self.reader,
            "taken": self.taken,
            "returned": self.returned,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            lease_id=value["lease_id"],
            reader=value["reader"],
            taken=value["taken"],
            returned=tuple(value["returned"]),
        )


class MessagePublished(Record, frozen=True, kw_only=True):
    """A message was published."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagePublished"
    CONTENT: ClassVar[Mapping[str, str]] = {"value": "text"}

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    message_id: str
    """Its id."""
    number: int
    """Its number in the queue, from 1."""
    position: int
    """Its place among the visible messages, from 1; 0: it is delayed."""
    visible_ns: int
    """Time in its cursor, nanoseconds since 1970; when delayed, the time at which it becomes visible."""
    published_ns: int
    """Time in its id, nanoseconds since 1970."""
    value: str
    """JSON text of the value; user content."""
    expires_at_ms: int = 0
    """When it is gone, UTC milliseconds; 0: never."""
    value_bytes: int = 0
    """Bytes of the value in plaintext."""
    dropped: int = 0
    """Messages that it has pushed out."""
    publisher: str = ''
    """_system, _admin, or the user."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "message_id": self.message_id,
            "number": self.number,
            "position": self.position,
            "visible_ns": self.visible_ns,
            "published_ns": self.published_ns,
            "expires_at_ms": self.expires_at_ms,
            "value": self.value,
            "value_bytes": self.value_bytes,
            "dropped": self.dropped,
            "publisher": self.publisher,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            message_id=value["message_id"],
            number=value["number"],
            position=value["position"],
            visible_ns=value["visible_ns"],
            published_ns=value["published_ns"],
            expires_at_ms=value["expires_at_ms"],
            value=value["value"],
            value_bytes=value["value_bytes"],
            dropped=value["dropped"],
            publisher=value["publisher"],
        )


class MessagesDropped(Record, frozen=True, kw_only=True):
    """The oldest messages were removed."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagesDropped"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    first_position: int
    """Place of the oldest message that is left, or of the next one."""
    count: int
    """How many were removed."""
    reason: str
    """max_messages or age."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "first_position": self.first_position,
            "count": self.count,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            first_position=value["first_position"],
            count=value["count"],
            reason=value["reason"],
        )


class MessagesLeased(Record, frozen=True, kw_only=True):
    """A reader took messages."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagesLeased"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    lease_id: str
    """The lease: id of the command, or of the wait."""
    positions: tuple[int, ...]
    """Their places, in order."""
    until_ms: int
    """When the queue asks the run again, or of a request, when they are visible again; UTC milliseconds."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""
    call: CallRef | None = None
    """The call of a run that reads; null: a request."""
    is_wait_over: bool = False
    """The call waited for them: it is told."""
    attempts: tuple[int, ...] = ()
    """How often the reader was given each of them, this time included, in the order of positions; empty: all for
    the first time.
    """

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "lease_id": self.lease_id,
            "reader": self.reader,
            "positions": self.positions,
            "call": None if self.call is None else self.call.to_avro(),
            "is_wait_over": self.is_wait_over,
            "until_ms": self.until_ms,
            "attempts": self.attempts,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            lease_id=value["lease_id"],
            reader=value["reader"],
            positions=tuple(value["positions"]),
            call=None if value["call"] is None else CallRef.from_avro(value["call"]),
            is_wait_over=value["is_wait_over"],
            until_ms=value["until_ms"],
            attempts=tuple(value["attempts"]),
        )


class MessagesSurfaced(Record, frozen=True, kw_only=True):
    """Delayed messages became visible."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagesSurfaced"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    messages: tuple[SurfacedMessage, ...]
    """They, in order."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "messages": [item.to_avro() for item in self.messages],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            messages=tuple(SurfacedMessage.from_avro(item) for item in value["messages"]),
        )


class QueuePurged(Record, frozen=True, kw_only=True):
    """All messages were removed."""

    SCHEMA: ClassVar[str] = "loom.channel.events.QueuePurged"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    count: int
    """How many."""
    first_position: int
    """Place of the next message."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "count": self.count,
            "first_position": self.first_position,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            count=value["count"],
            first_position=value["first_position"],
        )


class QueueWatched(Record, frozen=True, kw_only=True):
    """A call awaits messages, which stay in the queue."""

    SCHEMA: ClassVar[str] = "loom.channel.events.QueueWatched"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    wait_id: str
    """Id of the wait: of the command."""
    call: CallRef
    """The call."""
    after_position: int
    """Messages behind this place count."""
    count: int
    """Messages that are there now."""
    until_ms: int
    """When it ends, UTC milliseconds."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "wait_id": self.wait_id,
            "call": self.call.to_avro(),
            "after_position": self.after_position,
            "count": self.count,
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            wait_id=value["wait_id"],
            call=CallRef.from_avro(value["call"]),
            after_position=value["after_position"],
            count=value["count"],
            until_ms=value["until_ms"],
        )


class ReaderWaiting(Record, frozen=True, kw_only=True):
    """A call waits for messages."""

    SCHEMA: ClassVar[str] = "loom.channel.events.ReaderWaiting"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    wait_id: str
    """Id of the wait: of the command."""
    max_messages: int
    """Most messages."""
    call: CallRef
    """The call."""
    until_ms: int
    """When it stops waiting, UTC milliseconds."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "wait_id": self.wait_id,
            "reader": self.reader,
            "max_messages": self.max_messages,
            "call": self.call.to_avro(),
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            wait_id=value["wait_id"],
            reader=value["reader"],
            max_messages=value["max_messages"],
            call=CallRef.from_avro(value["call"]),
            until_ms=value["until_ms"],
        )


class WaitExpired(Record, frozen=True, kw_only=True):
    """A call has waited for messages in vain."""

    SCHEMA: ClassVar[str] = "loom.channel.events.WaitExpired"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    wait_id: str
    """Id of the wait."""
    call: CallRef
    """The call."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "wait_id": self.wait_id,
            "call": self.call.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            wait_id=value["wait_id"],
            call=CallRef.from_avro(value["call"]),
        )


class WatchReported(Record, frozen=True, kw_only=True):
    """A call that awaits messages is told how many there are."""

    SCHEMA: ClassVar[str] = "loom.channel.events.WatchReported"

    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    wait_id: str
    """Id of the wait."""
    call: CallRef
    """The call."""
    count: int
    """Messages that are there."""
    is_expired: bool = False
    """The wait is over."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "wait_id": self.wait_id,
            "call": self.call.to_avro(),
            "count": self.count,
            "is_expired": self.is_expired,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            wait_id=value["wait_id"],
            call=CallRef.from_avro(value["call"]),
            count=value["count"],
            is_expired=value["is_expired"],
        )


RECORDS = (
    CursorMoved,
    LeaseReminded,
    LeaseSettled,
    MessagePublished,
    MessagesDropped,
    MessagesLeased,
    MessagesSurfaced,
    QueuePurged,
    QueueWatched,
    ReaderWaiting,
    WaitExpired,
    WatchReported,
)
Event = CursorMoved | LeaseReminded | LeaseSettled | MessagePublished | MessagesDropped | MessagesLeased | MessagesSurfaced | QueuePurged | QueueWatched | ReaderWaiting | WaitExpired | WatchReported
