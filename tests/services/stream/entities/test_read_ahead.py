"""Timers of aggregates at rest: each is set once, all that are due together, and a clock set forward is noticed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loomlog.schemas.generated.counter_events import CounterReset
from loomlog.services.stream.entities import hosting
from tests.services.stream.entities.test_entities import checkpointed
from tests.services.stream.entities.world import EntityWorld, Process
from tests.sleeps import noted_sleeps

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def everything_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "HOT_AGGREGATES_MAX", 0)


@pytest_asyncio.fixture(loop_scope="session")
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld()
    yield made
    await made.close()


async def resting(world: EntityWorld, *names: str, after_ms: int) -> Process:
    """A process whose counters rest until they are set to zero."""
    process = await world.process()
    for name in names:
        await world.ask(process, world.increment(name, f"c-{name}", 3, reset_after_ms=after_ms))
    await checkpointed(world, process)
    await process.kill()
    return await world.process(name="b")


async def read_ahead(process: Process) -> None:
    for owner in process.entities.topic_set.owners.values():
        await process.entities.read_ahead(owner)


def count_set(process: Process, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each timer that is set."""
    timers, names = process.entities.topic_set.timers, list[str]()
    set_timer = timers.set

    def counted(at_ms: int, partition: int, aggregate: str) -> None:
        names.append(aggregate.rpartition("/")[2])
        set_timer(at_ms, partition, aggregate)

    monkeypatch.setattr(timers, "set", counted)
    return names


async def test_a_timer_is_set_once_until_it_is_due_and_again_if_it_fired_in_vain(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await resting(world, "old", after_ms=5_000)
    names = count_set(process, monkeypatch)
    for _ in range(3):
        await read_ahead(process)
    assert names == ["old"]
    world.now += 5_001
    for _ in range(2):
        await read_ahead(process)
    assert names == ["old"] * 3
    process.host.fire_due_timers()
    await world.until(lambda: isinstance(world.events("old")[-1], CounterReset))


async def test_all_that_is_due_together_is_read_together(world: EntityWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    due_timers = world.rows.due_timers

    async def noted(partition: int, before_ms: int, limit: int) -> list[tuple[str, int]]:
        limits.append(limit)
        timers: list[tuple[str, int]] = await due_timers(partition, before_ms, limit)
        return timers

    process = await resting(world, "one", "two", "three", after_ms=5_000)
    world.rows.due_timers = noted
    names = count_set(process, monkeypatch)
    await read_ahead(process)
    assert sorted(names) == ["one", "three", "two"]
    assert min(limits) >= 10_000


async def test_a_clock_that_is_set_forward_is_noticed_before_the_next_reading(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await resting(world, "old", after_ms=DAY_MS)
    names, pauses = count_set(process, monkeypatch), list[float]()
    noted_sleeps(monkeypatch, hosting.__name__, pauses.append)
    process.tasks.append(asyncio.create_task(process.entities.run()))
    await world.until(lambda: len(pauses) > 10)
    assert (names, max(pauses)) == ([], 1.0)
    world.now += DAY_MS + 1
    await world.until(lambda: names)
    process.host.fire_due_timers()
    await world.until(lambda: isinstance(world.events("old")[-1], CounterReset))
