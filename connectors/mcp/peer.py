"""A connection to a server as its users see it, and what the server may ask us meanwhile.

Every failure is one of the two kinds of connectors/errors.py. What matters to a caller is whether a request may have
been carried out: `NotSent` says that it certainly was not.

Before: session.py. After: http_transport.py, stdio_transport.py.
"""

import shlex
from collections.abc import Callable
from typing import Protocol

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.mcp.call_result import describe_question
from loomlog.connectors.mcp.calls_in_flight import CALL, CallInFlight
from loomlog.connectors.mcp.frames import Incoming, Params, encode_answer, encode_unknown_method
from loomlog.connectors.mcp.oauth import Challenge

HANDSHAKE_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 300.0
"""Seconds for opening a session, for a list of tools and for a call, as in the reference."""
QUESTIONS_MAX = 10
"""Questions of a server that are kept for the result of a call."""
LIST_CHANGED = "notifications/tools/list_changed"


class NotSent(Transient):
    """A request that did not reach the server, so it had no effect."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="network")


class SessionLost(NotSent):
    """The server no longer knows the session, and did not carry out the request: a new one may be opened."""


class AuthorizationNeeded(Permanent):
    """A server did nothing for want of a token, or of scopes. `challenge`: what it asks for; `remedy`: what helps."""

    def __init__(self, challenge: Challenge, status: int, remedy: str) -> None:
        asked = f"more access than was granted (403, scope {challenge.scope!r})" if status == 403 else "a token (401)"
        if status == 403 and challenge.scope and "login" in remedy:
            remedy = f"{remedy} --scopes {shlex.quote(challenge.scope)}"
        super().__init__(f"the server asks for {asked}: {remedy}", kind="unauthorised", status=status)
        self.challenge = challenge


class TokenSource(Protocol):
    """Where the bearer token of a session comes from. `owner` tells the sessions of several apart."""

    owner: str

    async def token(self, rejected: str = "") -> str:
        """Return the token; empty without one. `rejected`: one that the server no longer takes. Raises Transient and
        Permanent.
        """
        ...


class Connection(Protocol):
    """A transport. `revision` is what was negotiated; empty before."""

    revision: str
    is_closed: bool

    async def request(self, method: str, params: Params, *, timeout_s: float) -> dict[str, object]:
        """Return the result. Raises ServerRefused, Transient and Permanent."""
        ...

    async def notify(self, method: str, params: Params) -> None: ...

    async def answer(self, frame: bytes) -> None:
        """Send the answer to a request of the server."""
        ...

    async def close(self) -> None: ...


class IncomingMessages:
    """What a server sends besides answers. `on_list_changed` is called when its tools may be others now."""

    def __init__(self, on_list_changed: Callable[[], None]) -> None:
        self._on_list_changed = on_list_changed
        self._questions: list[str] = []
        self.calls: set[CallInFlight] = set()
        """Calls in flight that may ask a person."""

    def take(self, incoming: Incoming) -> bytes | None:
        """Return the answer to a request of the server; None for a notification.

        A question to the user is passed to the call that it belongs to, if that may ask a person: it is answered later.
        Any other one is cancelled, and the call's result says what was asked (`take_questions`).
        """
        if incoming.id is None:
            if incoming.method == LIST_CHANGED:
                self._on_list_changed()
            return None
        if incoming.method == "ping":
            return encode_answer(incoming.id, {})
        if incoming.method == "elicitation/create":
            call = self._call_of_question()
            if call is not None and call.take(incoming):
                return None
            if len(self._questions) < QUESTIONS_MAX:
                self._questions.append(describe_question(incoming.params))
            return encode_answer(incoming.id, {"action": "cancel"})
        return encode_unknown_method(incoming.id, incoming.method)

    def _call_of_question(self) -> CallInFlight | None:
        """Return the call in which a server asks: over one stream for all calls, the only one that is in flight."""
        call = CALL.get()
        if call is None and len(self.calls) == 1:
            [call] = self.calls
        return call if call in self.calls else None

    def take_questions(self) -> list[str]:
        """Return the questions since the last time."""
        questions, self._questions = self._questions, []
        return questions
