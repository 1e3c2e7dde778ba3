"""A row of the table of routes, and the parameters that many rows share.

Before: the tables (run_routes.py and those next to it). After: app.py registers rows, openapi.py describes them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loomlog.services.api.request_shares import Takes
from loomlog.services.api.service import Service
from loomlog.services.application.bodies.models import Body
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import Access
from loomlog.services.core.operations import ADMINISTRATIVE, Routed, Tag

AsgiResponse = Response | ASGIApp
Handler = Callable[[Service, Caller, Request], Awaitable[Any]]
"""An endpoint; returns a Response or any other ASGI application."""
SocketHandler = Callable[[Service, Access, Scope, Receive, Send], Awaitable[int]]
"""Serves a WebSocket until it ends, and returns the status of its handshake response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A query parameter in the OpenAPI document."""

    name: str
    description: str
    required: bool = False
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSchema:
    """A body or an answer without a class of its own, described by a JSON schema."""

    name: str
    """Name in the OpenAPI document; unique, and a letter or digit at each place."""
    schema: Mapping[str, Any]
    example: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route(Routed):
    """A row of the table. The schema of the answer is that of the handler's return type, or `response`."""

    route: str
    access: Access
    handler: Handler
    summary: str
    response: type | NamedSchema | tuple[type, ...] | None = None
    """The JSON of the answer, for a handler that sends it in pieces or serves several rows; several: it is one of
    them.
    """
    body: type[Body] | NamedSchema | None = None
    body_optional: bool = False
    takes_file: bool = False
    """Whether the body is a file, of which no media type is required."""
    query: Sequence[QueryParameter] = ()
    takes_any_query: bool = False
    """Whether unknown parameters are passed over, as a protocol of others demands."""
    is_stream: bool = False
    takes_instead: Takes | None = None
    """What a request takes, where it does not follow from the rest of the row."""
    media_type: str = "application/json"
    status: int = 200
    """Status of a successful response; 204 has no content."""
    alternative_status: int = 0
    """Second status of a successful response with the same format; 0 for none."""
    refusal_statuses: Sequence[int] = ()
    """Statuses of refusals beyond those that follow from what the route accepts (openapi.py)."""
    refusal_form: type | NamedSchema | None = None
    """Refusals in the form of a protocol of its own, besides those of all routes."""
    operation: str = ""
    """Id of the operation; empty: the name of the handler."""
    tag: Tag | None = None
    """Group of the operation; None: that of the handler's module."""
    recognises_key: bool = False
    """Whether the owner of what the path names refuses another body under a used Idempotency-Key by itself, so that a
    request on a hot road need not look the key up.
    """
    act: str | None = None
    """Name of the act that a request for operations is, empty: it is none; None: the row is no operation, so it is an
    act by its own id if it changes something with the access of operators.
    """
    opens_with_public_config: bool = False
    """Whether it answers requests without a token too where LOOMLOG_PUBLIC_CONFIG is set."""
    socket_handler: SocketHandler | None = None
    """Set when the path is a WebSocket; `handler` then responds to requests that are not a handshake."""

    @property
    def template(self) -> str:
        """The path as the OpenAPI document names it: without the form of its parameters, such as `{key:path}`."""
        return self.path.replace(":path}", "}")

    @property
    def operation_id(self) -> str:
        """Name of the operation, unique in the table."""
        return self.operation or self.handler.__name__

    @property
    def takes(self) -> Takes:
        """What a request takes of the process while it is handled."""
        if self.takes_instead is not None:
            return self.takes_instead
        if self.access.is_public:
            return Takes.NOTHING
        return Takes.STREAM if self.is_stream else Takes.REQUEST

    @property
    def is_mutating(self) -> bool:
        """Whether requests change something, and so take an Idempotency-Key."""
        return self.method in ("POST", "PUT", "PATCH", "DELETE")

    @property
    def own_act(self) -> str:
        """Name of the act that a request is, of a row that is no operation; empty: it is none, or the dispatch has
        it.
        """
        is_act = self.act is None and self.is_mutating and not ADMINISTRATIVE.isdisjoint(self.access.scopes)
        return self.operation_id if is_act else ""

    @property
    def accepts_position(self) -> bool:
        """Whether requests may name positions of earlier writes that their answer includes: all that need a token.

        Not public routes, which also answer before the log is there, nor sockets.
        """
        return not self.access.is_public and self.socket_handler is None

    @property
    def query_names(self) -> frozenset[str]:
        """Names of the query parameters; others are refused."""
        return frozenset(parameter.name for parameter in self.query) | (
            {"position"} if self.accepts_position else set()
        )


TENANT_PARAMETER = QueryParameter(name="tenant", description="Administrators: only this tenant.")
STATUS_PARAMETER = QueryParameter(
    name="status", description="running, completed, failed, cancelled with commas between, or all."
)
SESSION_PATH = "/v1/sessions/{session_id}"
RUN_PATH = "/v1/runs/{run_id}"
SNAPSHOTS_PATH = "/v1/_snapshots"
SNAPSHOT_PATH = "/v1/_snapshots/{snapshot_id}"
