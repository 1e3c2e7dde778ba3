"""Virtual time, and processes that can be stopped anywhere."""

import asyncio
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import Answer, Nap, Process, VirtualLoop, ordered_groups

END_S = 100.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(Random(1))  # type: ignore[abstract]  # it has no I/O
    yield made
    made.close()


def spawned(loop: VirtualLoop, *works: Coroutine[Any, Any, Any]) -> list[Process]:
    """Each in a process of its own."""
    processes = [loop.process(f"p{number}") for number in range(len(works))]
    for process, work in zip(processes, works, strict=True):
        loop.spawn(process, work)
    return processes


def test_time_jumps_to_the_next_timer_and_nobody_waits(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(20.0)
            seen.append(loop.time())

    spawned(loop, work())
    loop.run(END_S)
    assert seen == [20.0, 40.0, 60.0]


def test_time_outs_come_when_they_should(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        try:
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append(loop.time())

    spawned(loop, work())
    loop.run(END_S)
    assert seen == [5.0]


def test_a_frozen_process_does_not_run_and_its_timers_wait_for_it(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        await asyncio.sleep(1.0)
        seen.append(loop.time())

    (process,) = spawned(loop, work())
    loop.freeze(process)
    loop.call_for(loop.outside, 7.0, loop.thaw, process)
    loop.run(END_S)
    assert seen == [8.0]  # it had not even begun to sleep


def test_a_sleeper_finds_what_was_due_while_it_was_paused(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        await asyncio.sleep(1.0)
        seen.append(loop.time())

    (process,) = spawned(loop, work())
    loop.call_for(loop.outside, 0.5, loop.freeze, process)
    loop.call_for(loop.outside, 7.0, loop.thaw, process)
    loop.run(END_S)
    assert seen == [7.0]


@pytest.mark.parametrize("fuse", range(1, 8))
def test_a_fuse_strikes_before_exactly_that_callback(loop: VirtualLoop, fuse: int) -> None:
    seen: list[int] = []

    async def work() -> None:
        for number in range(20):
            seen.append(number)
            await asyncio.sleep(0)

    (process,) = spawned(loop, work())
    process.fuse = fuse
    process.on_fuse = lambda: loop.freeze(process)
    loop.run(END_S)
    assert seen == list(range(fuse - 1))


def test_within_a_process_callbacks_keep_their_order_and_between_processes_the_seed_decides() -> None:
    def order(seed: int) -> list[str]:
        loop = VirtualLoop(Random(seed))  # type: ignore[abstract]  # it has no I/O
        seen: list[str] = []
        for name in "abcd":
            process = loop.process(name)
            for number in range(3):
                loop.call_for(process, 1.0, seen.append, f"{name}{number}")
        loop.run(END_S)
        loop.close()
        return seen

    orders = [order(seed) for seed in range(20)]
    assert all([item for item in actual if item[0] == "c"] == ["c0", "c1", "c2"] for actual in orders)
    assert len({tuple(actual) for actual in orders}) > 10
    assert order(3) == orders[3]


def test_an_unordered_loop_runs_everything_once_in_any_order() -> None:
    def order(seed: int) -> str:
        loop = VirtualLoop(Random(seed), unordered=True)  # type: ignore[abstract]  # it has no I/O
        seen: list[str] = []
        process = loop.process("p")
        for name in "abcde":
            loop.call_for(process, 1.0, seen.append, name)
        loop.run(END_S)
        loop.close()
        return "".join(seen)

    orders = [order(seed) for seed in range(30)]
    assert all(sorted(text) == list("abcde") for text in orders)
    assert len(set(orders)) > 10
    assert order(7) == orders[7]


def test_a_group_cancels_its_tasks_in_the_order_of_their_beginning(loop: VirtualLoop) -> None:
    ended: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(END_S)
        finally:
            ended.append(number)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(child(number))
            await asyncio.sleep(1.0)
            raise KeyError

    with ordered_groups():
        spawned(loop, work())
        loop.run(END_S)
    assert ended == list(range(50))


def test_a_sleep_takes_its_time_gives_its_result_and_can_be_cancelled(loop: VirtualLoop) -> None:
    seen: list[object] = []

    async def sleeper() -> None:
        try:
            await Nap(50.0)
        finally:
            seen.append(loop.time())

    async def work() -> None:
        seen.append(await Nap(2.0, "rested"))
        seen.append(await Nap(0, "at once"))
        task = asyncio.ensure_future(sleeper())
        await Nap(1.0)
        task.cancel()

    spawned(loop, work())
    loop.run(END_S)
    assert seen == ["rested", "at once", 3.0]
    assert loop.time() < 50.0, "a cancelled sleep keeps nobody waiting"


def test_closing_ends_every_task_also_of_frozen_processes(loop: VirtualLoop) -> None:
    ended: list[str] = []

    async def rest() -> None:
        await asyncio.sleep(1_000.0)

    async def work(name: str) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(rest())
        finally:
            ended.append(name)

    first, _ = spawned(loop, work("first"), work("second"))
    loop.run(1.0)
    loop.freeze(first)
    loop.close()
    assert sorted(ended) == ["first", "second"]


def test_an_answer_wakes_who_waits_for_it_once_with_what_was_told_first(loop: VirtualLoop) -> None:
    seen: list[object] = []
    answer, failed, before = Answer(loop), Answer(loop), Answer(loop)

    async def work() -> None:
        seen.append(await answer)
        seen.append(loop.time())
        try:
            await failed
        except TimeoutError:
            seen.append("failed")
        seen.append(await before)

    (process,) = spawned(loop, work())
    loop.call_for(process, 2.0, answer.tell, "first")
    loop.call_for(process, 3.0, answer.fail, TimeoutError())
    loop.call_for(process, 4.0, before.tell, "before anybody asked")
    loop.call_for(process, 5.0, failed.fail, TimeoutError())
    loop.run(END_S)
    assert seen == ["first", 2.0, "failed", "before anybody asked"]


def test_who_is_cancelled_hears_no_answer(loop: VirtualLoop) -> None:
    seen: list[float] = []
    answer = Answer(loop)

    async def wait() -> None:
        try:
            await answer
        finally:
            seen.append(loop.time())

    async def work() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(1.0)
        task.cancel()

    (process,) = spawned(loop, work())
    loop.call_for(process, 2.0, answer.tell, "too late")
    loop.run(END_S)
    assert seen == [1.0]
    assert not loop.complaints
