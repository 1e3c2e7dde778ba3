"""Records of the namespace loom.channel.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import CallRef, SurfacedMessage
from loomlog.schemas.records import Record


class CursorMoved(Record, frozen=True, kw_only=True):
    """A reader's cursor was set."""

    SCHEMA: ClassVar[str] = "loom.channel.events.CursorMoved"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "channel", "scope", "scope_id", "reader", "cursor", "position",
    )

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


class LeaseSettled(Record, frozen=True, kw_only=True):
    """A lease has ended."""

    SCHEMA: ClassVar[str] = "loom.channel.events.LeaseSettled"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "channel", "scope", "scope_id", "lease_id", "reader", "taken", "returned",
    )

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


class MessagePublished(Record, frozen=True, kw_only=True):
    """A message was published."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagePublished"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "channel", "scope", "scope_id", "message_id", "number", "position", "visible_ns", "published_ns",
        "expires_at_ms", "value", "value_bytes", "dropped", "publisher",
    )
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


class MessagesLeased(Record, frozen=True, kw_only=True):
    """A reader took messages."""

    SCHEMA: ClassVar[str] = "loom.channel.events.MessagesLeased"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "channel", "scope", "scope_id", "lease_id", "reader", "positions", "call", "is_wait_over", "until_ms",
        "attempts",
    )

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


class ReaderWaiting(Record, frozen=True, kw_only=True):
    """A call waits for messages."""

    SCHEMA: ClassVar[str] = "loom.channel.events.ReaderWaiting"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "channel", "scope", "scope_id", "wait_id", "reader", "max_messages", "call", "until_ms",
    )

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
