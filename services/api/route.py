"""What a row of the table of routes says, and the parameters that many rows have.

Before: the tables (run_routes.py and those beside it). After: app.py registers rows, openapi.py describes them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loomlog.services.api.request_models import Body
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller

Answer = Response | ASGIApp
Handler = Callable[[Service, Caller, Request], Awaitable[Any]]
"""What it gives is a Response or any other ASGI answer."""
SocketHandler = Callable[[Service, Scope, Receive, Send], Awaitable[int]]
"""Serves a WebSocket to its end, and gives the status its handshake was answered with."""


class Access(Enum):
    """Access without a scope."""

    PUBLIC = "public"
    ANY_CALLER = "any caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A query parameter in the document."""

    name: str
    says: str
    kind: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A row of the table. `answer` names a schema of openapi.py; `streams` marks an event stream."""

    method: str
    path: str
    access: str | Access
    handler: Handler
    says: str
    answer: str = "Object"
    body: type[Body] | None = None
    body_optional: bool = False
    query: Sequence[QueryParameter] = ()
    streams: bool = False
    takes_position: bool = False
    takes_key: bool = False
    media_type: str = "application/json"
    status: int = 200
    """Of a good answer; 204 has no content."""
    other_status: int = 0
    """Of a good answer of the same shape; 0: there is none."""
    socket: SocketHandler | None = None
    """The path is a WebSocket; `handler` answers requests that ask for none."""


POSITIVE_INTEGER = {"type": "integer", "minimum": 1}
POSITION = QueryParameter(
    name="position", says="A position token of an earlier write; as the header X-Loomlog-Position."
)
CURSOR = QueryParameter(name="cursor", says="`next` of an earlier answer.")
LIMIT = QueryParameter(name="limit", says="Most entries of one answer.", kind=POSITIVE_INTEGER)
TENANT = QueryParameter(name="tenant", says="Administrators: only this tenant.")
STATUS = QueryParameter(name="status", says="running, completed, failed, cancelled with commas between, or all.")
INTERRUPT_STATUS = QueryParameter(
    name="status",
    says="pending, resolved, declined, timed_out, cancelled, delivered with commas between, or all.",
)
SESSION = "/v1/sessions/{session_id}"
RUN = "/v1/runs/{run_id}"
AGENT = "/v1/agents/{agent_id}"
SNAPSHOTS = "/v1/_snapshots"
SNAPSHOT = "/v1/_snapshots/{snapshot_id}"
