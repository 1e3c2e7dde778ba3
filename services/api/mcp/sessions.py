"""Sessions of MCP's handshake era without a memory of them: the id of a session is its state, sealed.

Any process of the installation opens it, so an api may die at any moment and its clients go on. A session belongs to
the principal that began it. Its id has nothing but the outcome of the handshake: the token of each request decides.

Before: endpoint.py. After: nothing.
"""

import base64
import binascii
import os
from collections.abc import Callable

import msgspec

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey

PURPOSE = "mcp session"
LIFETIME_MS = 24 * 3_600_000
"""How long a session may be used; its client then begins another one."""
ID_CHARACTERS_MAX = 1_000


class Session(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a handshake."""

    revision: str
    tenant: str
    subject: str
    began_ms: int
    nonce: str
    has_run_events: bool = False
    """The client wants the events of the runs that it starts."""
    has_elicitation: bool = False
    """The client can put a question to its user."""


class Sessions:
    """Seals and opens ids of sessions."""

    def __init__(self, key: SecretKey | None, *, clock_ms: Callable[[], int]) -> None:
        """`key` None: a random one of this process, whose sessions end with it."""
        self._key = key or SecretKey(keys=(os.urandom(32),))
        self._clock_ms = clock_ms

    def begin(
        self, revision: str, tenant: str, subject: str, *, has_run_events: bool, has_elicitation: bool = False
    ) -> str:
        """Return the id of a new session."""
        nonce = os.urandom(9).hex()
        session = Session(revision, tenant, subject, self._clock_ms(), nonce, has_run_events, has_elicitation)
        sealed = self._key.encrypt(msgspec.msgpack.encode(session), PURPOSE)
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, session_id: str, tenant: str, subject: str) -> Session | None:
        """Return the session of a principal; None when there is no such one, or its time is over."""
        if not session_id.isascii() or len(session_id) > ID_CHARACTERS_MAX:
            return None
        try:
            sealed = base64.b64decode(session_id + "=" * (-len(session_id) % 4), altchars=b"-_", validate=True)
            session = msgspec.msgpack.decode(self._key.decrypt(sealed, PURPOSE), type=Session)
        except (binascii.Error, SecretDecryptionError, msgspec.MsgspecError, ValueError):
            return None
        is_theirs = (session.tenant, session.subject) == (tenant, subject)
        age_ms = self._clock_ms() - session.began_ms
        return session if is_theirs and -LIFETIME_MS < age_ms < LIFETIME_MS else None
