"""Events of families for clients that subscribe to them: after a cursor, one page at a time or as a stream.

They are read by an operation and followed at an endpoint of the family, so access, tenant and bounds are those. A
protocol has its own form of them; MCP is one.

Before: api.py of a family declares. After: services/api/mcp/event_operations.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.operations import AnyOperation

Arguments = Mapping[str, str]
"""What narrows a subscription, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventForm:
    """An event as its subscribers see it."""

    id: str
    at: str
    """RFC 3339."""
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventType:
    """The declaration of a type of events. Its records have a `cursor`, which is behind them."""

    name: str
    """`<family>.<what has happened>`."""
    description: str
    arguments: Mapping[str, Any]
    """JSON schema of what narrows a subscription; every argument is text."""
    payload: Mapping[str, Any]
    """JSON schema of the data of an event."""
    record: type[Struct]
    """A record of an answer of `poll`, and of an event of `follow`."""
    poll: AnyOperation
    poll_fields: Callable[[Arguments, str | None, int], Mapping[str, Any]]
    """Returns the input of `poll` for the events after a cursor, up to a limit; without one, for the newest event."""
    records: Callable[[Any], Sequence[Any]]
    """Returns the records of an answer of `poll`."""
    follow: Endpoint
    path: Callable[[Arguments], Mapping[str, str]]
    """Returns the parameters of the path of `follow`; those of the query are the arguments."""
    form: Callable[[Arguments, Any], EventForm]
    """Returns the event of a record."""
