"""Tokens that were obtained lately, by what they were obtained for: one exchange at a time for each.

Before: github_apps.py, services/families/identity/renewals.py. After: asyncio.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import ClassVar

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

    def __init__(self, *, ahead_s: float, clock_s: Callable[[], float]) -> None:
        self._ahead_s = ahead_s
        self._clock_s = clock_s
        self._tokens: OrderedDict[Hashable, ShortToken] = OrderedDict()
        self._obtaining: dict[Hashable, asyncio.Task[ShortToken]] = {}

    async def get(self, place: Hashable, obtain: Callable[[], Awaitable[ShortToken]]) -> str:
        """Return a token that is good for a while, obtained if there is none. Raises what `obtain` raises."""
        known = self._tokens.get(place)
        if known is not None and self._clock_s() < known.expires_at_s - self._ahead_s:
            self._tokens.move_to_end(place)
            return known.value
        if place not in self._obtaining:
            # A task of its own: a caller that is cancelled does not end it for the others.
            task = asyncio.ensure_future(self._obtain(place, obtain))
            self._obtaining[place] = task
            task.add_done_callback(lambda done: self._forget(place, done))
        return (await asyncio.shield(self._obtaining[place])).value

    async def _obtain(self, place: Hashable, obtain: Callable[[], Awaitable[ShortToken]]) -> ShortToken:
        token = await obtain()
        self._tokens[place] = token
        self._tokens.move_to_end(place)
        if len(self._tokens) > TOKENS_MAX:
            self._tokens.popitem(last=False)
        return token

    def _forget(self, place: Hashable, done: "asyncio.Task[ShortToken]") -> None:
        self._obtaining.pop(place, None)
        if not done.cancelled():
            done.exception()  # it was raised to those who waited, if any did
