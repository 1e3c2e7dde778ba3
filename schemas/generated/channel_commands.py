"""Records of the namespace loom.channel.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from loomlog.schemas.generated.values import CallRef, CommandEnvelope
from loomlog.schemas.records import Record


class AckCursor(Record, frozen=True, kw_only=True):
    """Move the cursor of a reader."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.AckCursor"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    cursor: str
    """The new one."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "reader": self.reader,
            "cursor": self.cursor,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            reader=value["reader"],
            cursor=value["cursor"],
        )


class PublishMessage(Record, frozen=True, kw_only=True):
    """Publish a message."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.PublishMessage"
    CONTENT: ClassVar[Mapping[str, str]] = {"value": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    value: str
    """JSON text of the value; user content."""
    value_bytes: int = 0
    """Bytes of the value in plaintext, when `value` is encrypted; 0: those of `value`."""
    ttl_ms: int = 0
    """Milliseconds from publishing until it is gone; 0: for ever."""
    deliver_at_ms: int = 0
    """When it becomes visible, UTC milliseconds; 0: at once."""
    max_messages: int = 0
    """Messages that the queue keeps, as declared now; 0: any number."""
    publisher: str = ''
    """_system, _admin, or the user."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "value": self.value,
            "value_bytes": self.value_bytes,
            "ttl_ms": self.ttl_ms,
            "deliver_at_ms": self.deliver_at_ms,
            "max_messages": self.max_messages,
            "publisher": self.publisher,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            value=value["value"],
            value_bytes=value["value_bytes"],
            ttl_ms=value["ttl_ms"],
            deliver_at_ms=value["deliver_at_ms"],
            max_messages=value["max_messages"],
            publisher=value["publisher"],
        )


class PurgeQueue(Record, frozen=True, kw_only=True):
    """Remove all messages."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.PurgeQueue"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
        )


class ReadQueue(Record, frozen=True, kw_only=True):
    """Take the next messages."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.ReadQueue"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    reader: str = ''
    """Whose cursor; empty: the shared one."""
    after: str = ''
    """Cursor after which to read; empty: that of the reader."""
    max_messages: int = 10
    """Most messages."""
    call: CallRef | None = None
    """The call of a run that reads; null: a request."""
    wait_until_ms: int = 0
    """With a call: when it stops waiting if nothing is there, UTC milliseconds; 0: it does not wait."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "reader": self.reader,
            "after": self.after,
            "max_messages": self.max_messages,
            "call": None if self.call is None else self.call.to_avro(),
            "wait_until_ms": self.wait_until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            reader=value["reader"],
            after=value["after"],
            max_messages=value["max_messages"],
            call=None if value["call"] is None else CallRef.from_avro(value["call"]),
            wait_until_ms=value["wait_until_ms"],
        )


class SettleLease(Record, frozen=True, kw_only=True):
    """Tell which messages of a lease were taken; the others are visible again."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.SettleLease"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    lease_id: str
    """The lease."""
    taken: int
    """How many messages, from the first on."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "lease_id": self.lease_id,
            "taken": self.taken,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            lease_id=value["lease_id"],
            taken=value["taken"],
        )


class WatchQueue(Record, frozen=True, kw_only=True):
    """Report to a call how many messages there are, until a time."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.WatchQueue"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str
    """User or name of the agent; empty for global and tenant."""
    call: CallRef
    """The call."""
    until_ms: int
    """When it ends, UTC milliseconds."""
    after: str = ''
    """Cursor after which messages count; empty: that of the shared reader."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "call": self.call.to_avro(),
            "after": self.after,
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            call=CallRef.from_avro(value["call"]),
            after=value["after"],
            until_ms=value["until_ms"],
        )


RECORDS = (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
Command = AckCursor | PublishMessage | PurgeQueue | ReadQueue | SettleLease | WatchQueue
