"""Lookups are made together, and each is answered."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from loomlog.services.stream.entities.batched_lookups import BatchedLookups


class Store:
    """Answers once `released`; remembers the queries."""

    def __init__(self) -> None:
        self.queries: list[list[int]] = []
        self.released = asyncio.Event()

    async def fetch(self, keys: Sequence[int]) -> Mapping[int, str]:
        self.queries.append(list(keys))
        await self.released.wait()
        if 13 in keys:
            raise ValueError("thirteen")
        return {key: str(key) for key in keys if key != 7}


async def test_what_arrives_during_a_query_goes_with_the_next_one() -> None:
    store = Store()
    lookups = BatchedLookups(store.fetch, batch_max=3)
    first = asyncio.create_task(lookups.get(1))
    while not store.queries:
        await asyncio.sleep(0)
    others = [asyncio.create_task(lookups.get(key)) for key in (2, 3, 2, 7, 5)]
    await asyncio.sleep(0)
    store.released.set()
    assert await first == "1"
    assert await asyncio.gather(*others) == ["2", "3", "2", None, "5"]
    assert store.queries == [[1], [2, 3, 7], [5]]


async def test_a_failure_reaches_all_who_wait_and_no_later_one() -> None:
    store = Store()
    store.released.set()
    lookups = BatchedLookups(store.fetch, batch_max=3)
    failures = await asyncio.gather(lookups.get(13), lookups.get(2), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["thirteen", "thirteen"]
    assert await lookups.get(2) == "2"


async def test_who_leaves_takes_nobody_with_it() -> None:
    store = Store()
    lookups = BatchedLookups(store.fetch, batch_max=3)
    leaver, stayer = asyncio.create_task(lookups.get(1)), asyncio.create_task(lookups.get(1))
    while not store.queries:
        await asyncio.sleep(0)
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    store.released.set()
    assert await stayer == "1"
