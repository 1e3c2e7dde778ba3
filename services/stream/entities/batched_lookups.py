"""Lookups that arrive while one is under way go together with the next one: one round trip, however many wait.

Before: rows.py. After: a query for many keys.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class BatchedLookups(Generic[KeyT, ValueT]):
    """`fetch` returns the values of keys; one it leaves out has none."""

    def __init__(self, fetch: Callable[[Sequence[KeyT]], Awaitable[Mapping[KeyT, ValueT]]], *, batch_max: int) -> None:
        self._fetch = fetch
        self._batch_max = batch_max
        self._keys: dict[KeyT, None] = {}
        """Keys of the batch that has not begun."""
        self._batch: asyncio.Task[Mapping[KeyT, ValueT]] | None = None
        self._last: asyncio.Task[Mapping[KeyT, ValueT]] | None = None

    async def get(self, key: KeyT) -> ValueT | None:
        """Return the value of a key as it is now or later. Raises what `fetch` raises."""
        if self._batch is None or (len(self._keys) >= self._batch_max and key not in self._keys):
            self._keys = {}
            self._batch = self._last = asyncio.create_task(self._run(self._keys, after=self._last))
        self._keys[key] = None
        # A caller that is cancelled must not cancel the batch of the others.
        return (await asyncio.shield(self._batch)).get(key)

    async def _run(
        self, keys: dict[KeyT, None], after: asyncio.Task[Mapping[KeyT, ValueT]] | None
    ) -> Mapping[KeyT, ValueT]:
        if after is not None and not after.done():
            await asyncio.wait({after})
        if self._keys is keys:
            self._batch = None
        return await self._fetch(list(keys))
