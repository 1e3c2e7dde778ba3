"""The start of every request: its id, its idempotency key, its positions, and the names of its query parameters.

Before: app.py. After: services/application/request_context.py.
"""

from collections.abc import Set
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from loomlog.connectors.client.http import CLI_AGENT
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.api.responses import POSITION_HEADER
from loomlog.services.application.errors import bad_request
from loomlog.services.application.request_context import RequestContext, begin_context
from loomlog.services.application.runs.requests import check_idempotency_key
from loomlog.services.core.access.decide import Caller

REQUEST_ID_HEADER = b"x-request-id"


def begin_request(request: Request) -> RequestContext:
    """Make the request the current one of this task; its id is in the response, in errors and in log lines."""
    context = begin_context(request.headers.get("x-request-id", ""), "http")
    context.traceparent = request.headers.get("traceparent", "")
    if request.headers.get("user-agent") == CLI_AGENT:
        context.transport = "cli"
    return context


def use_idempotency_key(context: RequestContext, caller: Caller, request: Request) -> None:
    """Draw the tokens of a request that changes something from its Idempotency-Key, if it has one."""
    key = request.headers.get("idempotency-key", "").strip()
    if key:
        check_idempotency_key(key)
        context.idempotency_key = key
        context.scope = (caller.tenant, caller.subject, request.method, request.url.path)


def position_tokens(request: Request) -> list[str]:
    """Return the position tokens that a request brings along, in the query or in headers, separated by commas."""
    texts = request.headers.getlist(POSITION_HEADER)
    if request.scope["query_string"]:
        texts = texts + request.query_params.getlist("position")
    return [token for text in texts for part in text.split(",") if (token := part.strip())]


def check_encoding(request: Request) -> None:
    """Raise Refused(bad_request) unless path and query are UTF-8, as they would be read: a byte that is none is
    decoded as U+FFFD, and different names would become one.
    """
    scope = request.scope
    for what, raw in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if b"%" in raw or not raw.isascii():
            try:
                unquote_to_bytes(raw).decode()
            except UnicodeDecodeError as error:
                raise bad_request(f"the {what} is not percent-encoded UTF-8: {error.reason}") from error


def check_query(request: Request, known: Set[str]) -> None:
    """Raise Refused(bad_request) for an unknown query parameter, with the nearest known one."""
    for name in request.query_params:
        if name not in known:
            hint = did_you_mean(name, known) or (
                f"; known are {', '.join(sorted(known))}" if known else "; it takes none"
            )
            raise bad_request(f"unknown query parameter {name[:60]!r}{hint}")
