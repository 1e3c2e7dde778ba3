"""Records of the namespace loom.channel.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import CallRef, CommandEnvelope
from loomlog.schemas.records import Record


class AckCursor(Record, frozen=True, kw_only=True):
    """Move the cursor of a reader."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.AckCursor"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "channel", "scope", "scope_id", "reader", "cursor",
    )

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


class WatchQueue(Record, frozen=True, kw_only=True):
    """Report to a call how many messages there are, until a time."""

    SCHEMA: ClassVar[str] = "loom.channel.commands.WatchQueue"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "channel", "scope", "scope_id", "call", "after", "until_ms",
    )

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


RECORDS = (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
Command = AckCursor | PublishMessage | PurgeQueue | ReadQueue | SettleLease | WatchQueue
