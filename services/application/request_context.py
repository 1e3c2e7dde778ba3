"""The request that the current task handles: its id, and tokens that a repetition of it draws again.

A request with an Idempotency-Key draws its tokens from that key, so a repetition makes the same command ids, hook ids
and names of runs, and what received the first one recognises the second. The key counts together with the caller, the
method, the path and the step: the place that draws has a name of its own, so a build that draws one more token
elsewhere makes the same command of a repetition as the one before.

    repeatable       tokens of what has no owner to compare bodies: another body draws others
    command_tokens   the beginnings of ids of commands, the same for every body; `command_id` adds the body's digest,
                     and the owner that recognises the id refuses another body (services/stream/entities/handler.py)

Before: a transport begins a request. After: application.py wraps its source of tokens.
"""

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from msgspec import Struct, field

from loomlog.connectors.process.logs import log_fields
from loomlog.schemas.ids import hashed_token, with_body
from loomlog.services.core.operations import Change

REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}\Z")
"""A request id of a client is used as it is; anything else is replaced by a generated one."""
ACT_BODY_BYTES_MAX = 64 * 1024
"""Bytes of a body that an act of a route keeps; the file of a restore is larger."""


class RequestContext(Struct):
    """A request. `scope` has what the key belongs to: caller, method and path; `body_sha256` is set once it is read."""

    request_id: str = ""
    idempotency_key: str = ""
    scope: tuple[str, ...] = ()
    body_sha256: str = ""
    require_first: Callable[[str, str], Awaitable[None]] | None = None
    """Raises Refused for digests of key and body of which the key was used with another body before."""
    transport: str = "http"
    """http, web, cli, mcp or grpc: what an act says of it."""
    is_dispatched: bool = False
    """Whether the dispatch has the request: it records what it refuses."""
    traceparent: str = ""
    """Trace that it belongs to, as W3C Trace Context writes it; empty: none."""
    change: Change = field(default_factory=Change)
    """What a route that is no operation has changed."""
    body: bytes = b""
    """The body, once it is read, unless it is large."""
    drawn: Counter[str] = field(default_factory=Counter)
    """Tokens drawn so far, by step: a step may be taken for each of several things."""

    def hash_body(self, body: bytes) -> None:
        """Make the body part of the tokens; only a keyed request needs it."""
        if self.idempotency_key:
            self.body_sha256 = hashlib.sha256(body).hexdigest()

    async def take_body(self, body: bytes) -> None:
        """Make the body part of the tokens. Raises Refused(idempotency_key_reused)."""
        if len(body) <= ACT_BODY_BYTES_MAX:
            self.body = body
        self.hash_body(body)
        if self.idempotency_key and self.require_first is not None:
            await self.require_first(*self.digests())

    def digests(self) -> tuple[str, str]:
        """Return digests of the key, with what it belongs to, and of key and body."""
        parts = (*self.scope, self.idempotency_key)
        return hashed_token("key", *parts), hashed_token("body", *parts, self.body_sha256)

    def token(self, step: str, *parts: str) -> str:
        """Return the next token of a step."""
        self.drawn[step] += 1
        return hashed_token("request", *self.scope, self.idempotency_key, *parts, step, str(self.drawn[step]))


NO_REQUEST = RequestContext()
current_request: ContextVar[RequestContext] = ContextVar("current_request", default=NO_REQUEST)


def begin_context(sent_id: str, transport: str) -> RequestContext:
    """Return a new request, which is the current one of this task and named in its log lines."""
    request_id = sent_id if REQUEST_ID.match(sent_id) else f"q_{secrets.token_hex(8)}"
    request = RequestContext(request_id=request_id, transport=transport)
    current_request.set(request)
    log_fields.set({"request_id": request_id})
    return request


def key_digests() -> tuple[str, str] | None:
    """Return digests of the key of the current request, with what it belongs to, and of key and body; None without a
    key. For what has no owner and is found by its name.
    """
    request = current_request.get()
    return request.digests() if request.idempotency_key else None


def repeatable(fresh_token: Callable[[], str], step: str) -> Callable[[], str]:
    """Return the source of tokens of a step, which draws them from key and body of the current request, if it has a
    key.
    """

    def token() -> str:
        request = current_request.get()
        return request.token(step, request.body_sha256) if request.idempotency_key else fresh_token()

    return token


def command_tokens(fresh_token: Callable[[], str], step: str) -> Callable[[], str]:
    """Return the source of tokens for the ids of the commands of a step, as `repeatable` but without the body."""

    def token() -> str:
        request = current_request.get()
        return request.token(step) if request.idempotency_key else fresh_token()

    return token


def command_id(*parts: str) -> str:
    """Return the id of a command; of a keyed request with the digest of its body, which the key keeps from being
    guessed.
    """
    request, identity = current_request.get(), parts[0] if len(parts) == 1 else hashed_token(*parts)
    if not request.idempotency_key:
        return identity
    return with_body(identity, hashed_token(*request.scope, request.idempotency_key, request.body_sha256))
