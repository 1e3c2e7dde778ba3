"""Sessions of this process: opened when they are needed, kept while they are used, opened again with back-off.

A session belongs to one tenant, one version of one server, and the headers that a run's credentials make: no session
of one user carries a call of another. Of a server with several connections, such as several processes, the one with
the fewest calls is taken.

Before: services/families/mcp/tools.py. After: session.py.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.mcp.peer import AuthorizationNeeded, NotSent
from loomlog.connectors.mcp.session import Session
from loomlog.connectors.single_flight import SingleFlight

SESSIONS_MAX = 256
"""Sessions of a process: each has a socket or a process."""
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 16.0
"""Seconds after a failed attempt to open a session, doubled each time, as in the reference."""


class SessionKey(NamedTuple):
    """What a session belongs to."""

    tenant: str
    server: str
    version: str
    """Digest of the definition: another version has sessions of its own."""
    headers: str = ""
    """Digest of the headers."""
    number: int = 0
    """Number of the connection, among several to one server."""


Opener = Callable[[], Awaitable[Session]]


class SessionPool:
    """The sessions. `now_s` is a monotonic clock."""

    def __init__(self, *, now_s: Callable[[], float], sessions_max: int = SESSIONS_MAX) -> None:
        self._now_s = now_s
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[SessionKey, Session] = OrderedDict()
        self._opening: SingleFlight[SessionKey, Session] = SingleFlight()
        self._failures: OrderedDict[SessionKey, tuple[int, float, str]] = OrderedDict()
        """Failures in a row, the time of the next attempt, and the last reason."""
        self._closing: set[asyncio.Task[None]] = set()

    async def get(self, key: SessionKey, opener: Opener) -> Session:
        """Return an open session, of several callers at once the same. Raises Transient and Permanent."""
        session = self._sessions.get(key)
        if session is not None and not session.is_closed:
            self._sessions.move_to_end(key)
            return session
        if session is not None:
            self.discard(key)
        if key not in self._opening:
            self._require_due(key)
        return await self._opening.do(key, lambda: self._open(key, opener))

    def choose(self, key: SessionKey, count: int) -> SessionKey:
        """Return the key of the connection with the fewest calls, among `count`."""
        keys = [key._replace(number=number) for number in range(count)]
        return min(keys, key=lambda one: self._sessions[one].in_flight if one in self._sessions else -1)

    def discard(self, key: SessionKey) -> None:
        """Close a session; the next call opens another."""
        session = self._sessions.pop(key, None)
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all sessions; calls under way fail."""
        for key in list(self._sessions):
            self.discard(key)
        await asyncio.gather(*self._closing, *self._opening.cancel(), return_exceptions=True)

    async def _open(self, key: SessionKey, opener: Opener) -> Session:
        self._make_room()
        try:
            session = await opener()
        except ConnectorError as error:
            if not isinstance(error, AuthorizationNeeded):  # a person may grant access at any moment
                self._note_failure(key, str(error))
            raise
        self._failures.pop(key, None)
        self._sessions[key] = session
        return session

    def _make_room(self) -> None:
        if len(self._sessions) + len(self._opening) <= self._sessions_max:
            return
        idle = next((key for key, session in self._sessions.items() if session.in_flight == 0), None)
        if idle is None:
            raise Transient(f"this process has {self._sessions_max} sessions in use", kind="overloaded")
        self.discard(idle)

    def _require_due(self, key: SessionKey) -> None:
        _, due_s, reason = self._failures.get(key, (0, 0.0, ""))
        if (wait_s := due_s - self._now_s()) > 0:
            raise NotSent(f"{key.server} could not be reached, and is tried again in {wait_s:.1f} s: {reason}")

    def _note_failure(self, key: SessionKey, reason: str) -> None:
        failures = self._failures.pop(key, (0, 0.0, ""))[0] + 1
        delay_s = min(BACKOFF_FIRST_S * 2 ** (failures - 1), BACKOFF_MAX_S)
        self._failures[key] = (failures, self._now_s() + delay_s, reason)
        if len(self._failures) > self._sessions_max:
            self._failures.popitem(last=False)
