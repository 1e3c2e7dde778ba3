"""Requests to endpoints of families, as they came, and what is answered (services/core/endpoints.py).

Before: services/api/endpoint_routes.py. After: endpoints.py of families.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from msgspec import Struct

from loomlog.services.core.access.decide import Caller


class EndpointRequest(Protocol):
    """A request."""

    @property
    def caller(self) -> Caller:
        """The caller; at a public endpoint one without scopes."""
        ...

    @property
    def path(self) -> Mapping[str, str]:
        """Parameters of the path."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, with names in lower case."""
        ...

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is 1, true or yes."""
        ...

    def text(self, name: str) -> str:
        """Return a parameter of the query; empty when missing. Raises Refused."""
        ...

    def tenant(self) -> str:
        """Return the tenant that it is about: administrators may name another one in the query. Raises Refused."""
        ...

    async def body(self, limit: int) -> bytes:
        """Return the body. Raises Refused: payload_too_large and others."""
        ...

    async def identify(self) -> Caller:
        """Return who asks, at a public endpoint. Raises Refused."""
        ...

    @property
    def brings_token(self) -> bool:
        """Whether a token says who asks; known after `identify`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer:
    """An answer that is a record."""

    record: Struct
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOperation:
    """The request is one for the operation of the endpoint."""

    caller: Caller


class SentEvent(NamedTuple):
    """An event of a stream. `data` is JSON; a client that comes back names the last `id` it has."""

    type: str
    data: bytes
    id: str


class EventSource(Protocol):
    """The events of a stream that is open."""

    async def next(self, wait_s: float) -> Sequence[SentEvent] | None:
        """Return the next events; none when there are none in that time, None at the end. Raises Refused,
        Unavailable.
        """
        ...

    def close(self) -> None:
        """End the stream; a waiting `next` returns."""
        ...


EndpointHandler = Callable[[EndpointRequest], Awaitable[EndpointAnswer | AsOperation | EventSource]]
"""Answers a request. Raises Refused and Unavailable."""
