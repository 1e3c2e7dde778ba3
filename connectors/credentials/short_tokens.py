"""Tokens that were obtained lately, by what they were obtained for: one exchange at a time for each.

Before: github_apps.py, services/families/mcp/grants.py. After: connectors/single_flight.py.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import ClassVar

from loomlog.connectors.single_flight import SingleFlight
from loomlog.schemas.records import Secretive

TOKENS_MAX = 10_000
"""Tokens that a process keeps; the least recently used are dropped and obtained again."""


class ShortToken(Secretive, frozen=True, kw_only=True):
    """A token and when it ends, Unix seconds."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"value"})

    value: str
    expires_at_s: float


class ShortTokens:
    """Tokens by what they are for. `ahead_s`: seconds before its end in which one is not used any more."""

    def __init__(self, *, ahead_s: float, clock_s: Callable[[], float], tokens_max: int = TOKENS_MAX) -> None:
        self._ahead_s = ahead_s
        self._clock_s = clock_s
        self._tokens: OrderedDict[Hashable, ShortToken] = OrderedDict()
        self._tokens_max = tokens_max
        self._obtaining: SingleFlight[Hashable, ShortToken] = SingleFlight()

    async def get(self, place: Hashable, obtain: Callable[[], Awaitable[ShortToken]], *, rejected: str = "") -> str:
        """Return a token that is good for a while and not the rejected one, obtained if there is none. Raises what
        `obtain` raises.
        """
        known = self._tokens.get(place)
        if known is not None and known.value != rejected and self._clock_s() < known.expires_at_s - self._ahead_s:
            self._tokens.move_to_end(place)
            return known.value
        return (await self._obtaining.do(place, lambda: self._obtain(place, obtain))).value

    async def _obtain(self, place: Hashable, obtain: Callable[[], Awaitable[ShortToken]]) -> ShortToken:
        token = await obtain()
        self._tokens[place] = token
        self._tokens.move_to_end(place)
        if len(self._tokens) > self._tokens_max:
            self._tokens.popitem(last=False)
        return token
