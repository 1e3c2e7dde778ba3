"""The caller of an operation on channels, and the queue it is for: the same for requests, tool calls and the
publishers of the system.

Before: handlers.py. After: operations.py.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol
from urllib.parse import quote, unquote

from loomlog.schemas.generated.values import CallRef, CommandEnvelope, QueueRef
from loomlog.schemas.records import Value

FAMILY_NAME = "channel"
GLOBAL, TENANT, USER, AGENT = "global", "tenant", "user", "agent"
SCOPES = (GLOBAL, TENANT, USER, AGENT)
SHARED_TENANT = ""
"""Tenant of the queues of the scope global."""


class Queue(Value, frozen=True):
    """The messages of a channel in one scope: an aggregate of the family."""

    tenant: str
    """Empty for the scope global."""
    channel: str
    scope: str
    scope_id: str = ""

    @property
    def aggregate(self) -> str:
        """Name of the aggregate within the tenant."""
        return queue_name(self.channel, self.scope, self.scope_id)

    def to_ref(self) -> QueueRef:
        return QueueRef(tenant=self.tenant, channel=self.channel, scope=self.scope, scope_id=self.scope_id)


def queue_name(channel: str, scope: str, scope_id: str) -> str:
    """Return the name of the aggregate of a queue; those of one channel begin with its quoted name and a slash."""
    return f"{quote(channel, safe='')}/{scope}/{quote(scope_id, safe='')}"


def queue_of_aggregate(tenant: str, name: str) -> Queue:
    """Return the queue whose aggregate has this name."""
    channel, scope, scope_id = name.split("/")
    return Queue(tenant, unquote(channel), scope, unquote(scope_id))


def queue_of_ref(ref: QueueRef) -> Queue:
    """Return the queue that a record names."""
    return Queue(ref.tenant, ref.channel, ref.scope, ref.scope_id)


class Declaration(Value, frozen=True, kw_only=True):
    """A channel as it is declared, in a file or at run time."""

    name: str
    scope: str
    tenant: str = SHARED_TENANT
    """Tenant that declared it; empty: a file, or the scope global."""
    description: str = ""
    semantic: str = "queue"
    """Informational: queue, topic or broadcast."""
    default_ttl_s: int = 0
    """Seconds from publishing until a message is gone; 0: for ever."""
    max_messages: int = 0
    """Messages that a queue keeps; 0: any number."""
    publisher: str = ""
    """system: only the runtime and administrators publish. any: callers of all tenants publish to a global channel."""
    period_s: int = 0
    """Seconds between two messages of the system; 0: none."""
    source: str = "yaml"
    """yaml or runtime."""


class Declarations(Protocol):
    """The channels of this process: those of its files, and those that were made at run time (declarations.py)."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        """Return the declaration of a name as a tenant sees it: file, own tenant, scope global; None without one."""
        ...

    def list(self, tenant: str) -> Sequence[Declaration]:
        """Return all that a tenant sees, by name."""
        ...


class Origin(Enum):
    """Where an operation comes from, which decides who may publish (access.py)."""

    SYSTEM = "the runtime"
    ADMINISTRATOR = "a request of an administrator"
    MEMBER = "a request of another caller"
    AGENT = "a tool call of a run, or a hook at its end"
    DELIVERY = "a delivery to a webhook"
    EVENT = "a CloudEvent"


class ChannelCaller(Value, frozen=True, kw_only=True):
    """The caller of an operation. With `publish` and `subscribe` None: an operator or an application, which is not
    bound to patterns and may name scope ids.
    """

    tenant: str
    origin: Origin
    subject: str
    """Subject of the principal."""
    command_id: str
    """The same for every attempt of a request or a call."""
    issued_at_ms: int
    """0 when an earlier attempt may have been made."""
    user_id: str = ""
    agent: str = ""
    call: CallRef | None = None
    """The tool call, whose run takes what it reads; None outside of runs."""
    publish: tuple[str, ...] | None = None
    """Patterns of the channels that it may publish to."""
    subscribe: tuple[str, ...] | None = None
    """Patterns of the channels that it may read."""
    is_isolated: bool = False
    """Whether it is confined to its own subject: user and agent scope only."""
    publisher: str = ""
    """Mark of who publishes: _system, _admin, or the user."""
    positions: tuple[str, ...] = ()
    """Position tokens of earlier writes: reads include them."""

    def envelope(self, queue: Queue, step: str = "") -> CommandEnvelope:
        """Return the envelope of a command to a queue; `step` tells several commands of one call apart."""
        return CommandEnvelope(
            command_id=f"{self.command_id}.{step}" if step else self.command_id,
            tenant=queue.tenant,
            subject=queue.scope_id if queue.scope == USER else self.user_id or self.subject,
            issued_at_ms=self.issued_at_ms,
        )
