"""A route that is no operation, because what it takes or gives has a form of its own: a protocol of others, a stream.

It is declared by its family, as an operation is (operations.py), and served over HTTP alone. Its handler gets the
request as it came, and answers with a record, with events, or leaves the request to an operation.

Before: api.py of each family declares. After: services/api/endpoint_routes.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from loomlog.services.core.access.rules import Access
from loomlog.services.core.operations import AnyOperation, Http, Routed, Tag


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointBody:
    """The body of a request, as documents show it."""

    name: str
    record: type[Struct] | None = None
    """What the JSON of it is like; None: anything."""
    example: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Endpoint(Routed):
    """The declaration."""

    id: str
    """Name in the OpenAPI document, unique."""
    route: str
    """Method and path, such as `POST /v1/_webhooks/{name}`."""
    access: Access
    """Decided before the handler is asked; a public one has a caller without scopes."""
    summary: str
    tag: Tag
    body: EndpointBody | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the parameters of the query, all texts, by name."""
    response: type[Struct] | tuple[type[Struct], ...] | None = None
    """Record of the answer; several: it is one of them. None: it is a stream."""
    refusal_form: type[Struct] | None = None
    """Refusals in the form of a protocol of its own, besides those of all routes."""
    status: int = 200
    alternative_status: int = 0
    """Second status of a successful response; 0 for none."""
    refusal_statuses: Sequence[int] = ()
    unavailable_code: str
    """Code of a refusal when what it needs does not answer and says no code."""
    waits: bool = False
    """Whether a request may wait for a long time."""
    act: str | None = None
    """Name of the act that a request is; empty: it is none; None: it is one by its id if its access is that of
    operators.
    """
    operation: tuple[AnyOperation, Http] | None = None
    """What a request is that the handler leaves to it; the body is then that of the operation, `act` its name."""

    @property
    def is_stream(self) -> bool:
        return self.response is None
