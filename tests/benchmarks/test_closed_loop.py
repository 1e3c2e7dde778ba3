import asyncio
import itertools
import time

import pytest

from tests.benchmarks.closed_loop import measure, percentile


async def test_runs_that_end_while_it_is_counted_count_wherever_they_began():
    # Every second run begins when the warm-up is over, a moment before counting.
    async def slow() -> None:
        await asyncio.sleep(0.05)

    measured = await measure(slow, in_flight=40, warm_up_s=0.0, seconds=0.01)
    assert measured.runs == 80


async def test_counting_lasts_until_two_waves_are_over_however_slow_they_are():
    turns = itertools.count()

    async def slower_and_slower() -> None:
        await asyncio.sleep(0.01 * next(turns))

    measured = await measure(slower_and_slower, in_flight=1, warm_up_s=0.0, seconds=0.001)
    assert measured.runs == 2


async def test_the_time_after_the_last_wave_counts_for_nothing():
    """A third slower by chance: two waves of 0.15 s in a slice of 0.4 s were 0.4 s."""
    ends: list[float] = []
    waves = asyncio.Semaphore(6)

    async def one_run() -> None:
        await waves.acquire()  # after three waves nothing ends any more, until the slice is over
        await asyncio.sleep(0.01)
        ends.append(time.perf_counter())

    def mark(text: str) -> None:
        if text == "counted":
            waves.release()
            waves.release()

    measured = await measure(one_run, in_flight=2, warm_up_s=0.0, seconds=0.3, mark=mark)
    assert measured.runs == 4
    assert measured.seconds == pytest.approx(ends[5] - ends[1], abs=0.005)
    assert measured.runs_per_s == measured.runs / measured.seconds


async def test_counting_begins_when_as_many_runs_have_ended_as_are_in_flight():
    gate, ended, seen = asyncio.Event(), itertools.count(1), []

    async def one_run() -> None:
        await gate.wait()
        await asyncio.sleep(0)
        next(ended)

    def mark(text: str) -> None:
        seen.append((text, next(ended) - 1))

    asyncio.get_running_loop().call_later(0.05, gate.set)
    await measure(one_run, in_flight=7, warm_up_s=0.0, seconds=0.01, mark=mark)
    (counting, before), (counted, _) = seen
    assert (counting, counted) == ("counting", "counted")
    assert before >= 7


async def test_an_error_is_counted_and_ends_nothing():
    turns = itertools.count()

    async def one_run() -> None:
        await asyncio.sleep(0.001)
        if next(turns) % 2:
            raise RuntimeError("no done frame")

    measured = await measure(one_run, in_flight=2, warm_up_s=0.0, seconds=0.05)
    assert measured.errors > 0
    assert measured.runs > 0


async def test_a_bug_in_the_client_is_no_error_of_the_system():
    async def one_run() -> None:
        raise KeyError("a bug")

    with pytest.raises(ExceptionGroup) as raised:
        await measure(one_run, in_flight=1, warm_up_s=0.0, seconds=0.01)
    assert raised.group_contains(KeyError)


def test_percentiles_of_nothing_are_zero_and_never_past_the_end():
    assert percentile([], 0.99) == 0
    assert percentile([1.0, 2.0], 0.99) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
