"""The request that the current task handles: its id, and tokens that a repetition of it draws again.

A request with an Idempotency-Key draws its tokens from that key, so a repetition makes the same command ids, hook ids
and names of runs, and what received the first one recognises the second. The key counts together with the caller, the
method, the path and the body.

Before: a transport begins a request. After: application.py wraps its source of tokens.
"""

import hashlib
from collections.abc import Callable
from contextvars import ContextVar

from msgspec import Struct

from loomlog.schemas.ids import hashed_token


class RequestContext(Struct):
    """A request. `scope` has what the key belongs to: caller, method and path; `body_sha256` is set once it is read."""

    request_id: str = ""
    idempotency_key: str = ""
    scope: tuple[str, ...] = ()
    body_sha256: str = ""
    drawn: int = 0
    """Tokens drawn so far."""

    def hash_body(self, body: bytes) -> None:
        """Make the body part of the tokens; only a keyed request needs it."""
        if self.idempotency_key:
            self.body_sha256 = hashlib.sha256(body).hexdigest()


NO_REQUEST = RequestContext()
current_request: ContextVar[RequestContext] = ContextVar("current_request", default=NO_REQUEST)


def repeatable(fresh_token: Callable[[], str]) -> Callable[[], str]:
    """Return a source of tokens that draws them from the key of the current request, if it has one."""

    def token() -> str:
        request = current_request.get()
        if not request.idempotency_key:
            return fresh_token()
        request.drawn += 1
        return hashed_token("request", *request.scope, request.idempotency_key, request.body_sha256, str(request.drawn))

    return token
