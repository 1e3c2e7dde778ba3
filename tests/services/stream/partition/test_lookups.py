"""Work that ends at its first step, and work that waits."""

import asyncio

import pytest

from loomlog.services.stream.partition.lookups import PendingLookups, continue_in_task


async def test_work_from_memory_ends_at_once_in_the_callers_turn() -> None:
    done: list[asyncio.Task[None] | None] = []

    async def work() -> None:
        done.append(asyncio.current_task())

    async with asyncio.TaskGroup() as group:
        assert PendingLookups(group).begin_eagerly(work())
        assert done == [asyncio.current_task()]


async def test_work_that_waits_goes_on_in_a_task_of_its_own() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def work() -> None:
        await continue_in_task()
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        lookups = PendingLookups(group)
        assert not lookups.begin_eagerly(work())
        assert tasks == []
        await asyncio.sleep(0)
        assert tasks[0] not in (None, asyncio.current_task())
        lookups.end()


async def test_work_that_waits_in_the_callers_turn_is_a_bug_that_is_named() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        with pytest.raises(RuntimeError, match="before continue_in_task"):
            PendingLookups(group).begin_eagerly(work())
