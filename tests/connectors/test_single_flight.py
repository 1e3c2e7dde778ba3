"""Work that several callers want at the same time."""

import asyncio

import pytest

from loomlog.connectors.single_flight import SingleFlight


class Work:
    """Waits until it may go on."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self._error = error

    async def __call__(self) -> int:
        self.begun += 1
        await self.may_end.wait()
        if self._error is not None:
            raise self._error
        return self.begun


async def test_callers_at_once_share_and_later_ones_begin_again() -> None:
    flight, work = SingleFlight[str, int](), Work()
    callers = [asyncio.create_task(flight.do("a", work)) for _ in range(3)]
    await asyncio.sleep(0)
    assert ("a" in flight, "b" in flight, len(flight)) == (True, False, 1)
    work.may_end.set()
    assert await asyncio.gather(*callers) == [1, 1, 1]
    assert len(flight) == 0
    assert await flight.do("a", work) == 2


async def test_a_caller_that_is_cancelled_leaves_the_work_to_the_others() -> None:
    flight, work = SingleFlight[str, int](), Work()
    first, second = (asyncio.create_task(flight.do("a", work)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    work.may_end.set()
    assert await second == 1


async def test_what_the_work_raises_is_raised_to_all() -> None:
    flight, work = SingleFlight[str, int](), Work(ValueError("no"))
    work.may_end.set()
    results = await asyncio.gather(*(flight.do("a", work) for _ in range(2)), return_exceptions=True)
    assert [str(one) for one in results] == ["no", "no"]
    assert work.begun == 1


async def test_all_work_can_be_cancelled() -> None:
    flight, work = SingleFlight[str, int](), Work()
    waiting = flight.start("a", work)
    await asyncio.sleep(0)
    assert list(flight.cancel()) == [waiting]
    with pytest.raises(asyncio.CancelledError):
        await waiting
