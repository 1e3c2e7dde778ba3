"""What callers have open, streams and sockets, ended when their token gives no access any more.

A request is asked for its token at its start alone, and a stream lasts for hours. So the tokens of what is open are
looked at again and again: that finds a token that was retired, one whose time is over, and one whose user was disabled
alike, and costs a look-up for each token with something open.

Before: app.py, client_endpoints.py, mcp/endpoint.py, services/grpc/streams.py.
After: services/application/authentication.py.
"""

import asyncio
from collections.abc import Callable

from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.access.decide import Caller

LOOK_EVERY_S = 0.25
"""A token that is taken back ends what is open within a second, with the time that its event takes."""
ENDED = "the token gives no access any more"
End = Callable[[], None]


class OpenAccess:
    """Streams and sockets by the token that opened them."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._open: dict[Caller, dict[object, End]] = {}

    def hold(self, caller: Caller, end: End) -> End:
        """Call `end` when the token of the caller gives no access any more, unless what is returned is called first."""
        if not caller.token_id and not caller.legacy and caller.expires_at_ms is None:
            return _nothing
        key, ends = object(), self._open.setdefault(caller, {})
        ends[key] = end

        def release() -> None:
            ends.pop(key, None)
            if not ends:
                self._open.pop(caller, None)

        return release

    def end_revoked(self) -> None:
        """End what is open for tokens that give no access any more."""
        for caller, ends in list(self._open.items()):
            if not self._authenticator.is_in_force(caller):
                for end in list(ends.values()):
                    end()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.end_revoked()
            await asyncio.sleep(LOOK_EVERY_S)


def _nothing() -> None:
    """Release nothing: the token is that of a file, which ends with the process."""
