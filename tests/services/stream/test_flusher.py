"""The one flusher: what became ready goes along, an acknowledgement releases effects.

What it does with gaps, claims and unknown outcomes in the life of a host is in test_host_failures.py.
"""

import asyncio
from collections.abc import Callable

from connectors.memory_log import MemoryLog
from services.stream.flusher import claimed_in
from tests.services.stream.given import CODEC, EVENTS, claimed, flushed, started
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import World

Worlds = Callable[..., World]


async def test_all_partitions_fly_together(world_of: Worlds) -> None:
    world = world_of(partitions=4, turns=1)
    hosted = world.host()
    await world.until(lambda: all(hosted.partition(number) for number in range(4)))
    hosted.wire.open.clear()
    names = [f"r_{number}" for number in range(16)]
    world.start_run("r_first")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    for name in names:
        world.start_run(name)
    await world.until(lambda: hosted.host.figures.commands == 17)
    hosted.wire.open.set()
    await world.until(lambda: all(world.has(name) for name in names))
    await world.until(lambda: hosted.host.flusher.records >= 34)
    assert hosted.host.flusher.flushes == 2


async def test_the_wire_is_free_again_after_a_flush(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(hosted.settled)
    flusher = hosted.host.flusher
    assert flusher.in_flight_since is None
    assert flusher.records == 4
    assert (flusher.sizes.total, flusher.seconds.total) == (flusher.flushes, flusher.flushes)


async def test_whoever_waits_for_a_flush_is_woken_by_it(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    await world.until(hosted.partition)
    flusher = hosted.host.flusher
    flusher.drained.clear()
    waiting = asyncio.get_running_loop().create_task(flusher.drained.wait())
    await world.ticks(5)
    assert not waiting.done()
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(waiting.done)


async def test_to_be_woken_for_nothing_flushes_nothing(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    before = len(world.log.records[TOPICS.events, 0])
    hosted.host.flusher.wake()
    await world.ticks(5)
    assert hosted.host.flusher.flushes == 0
    assert len(world.log.records[TOPICS.events, 0]) == before


async def test_a_partition_that_was_given_up_is_not_told_about_its_last_batch(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    hosted.reassign()
    await world.until(lambda: not hosted.host.owners)
    hosted.wire.open.set()
    await world.until(lambda: world.has("r_x"))
    await world.ticks(5)
    assert world.begun == {}
    assert not hosted.task.done()


async def test_a_claim_is_found_wherever_it_lies_in_the_gap() -> None:
    log = MemoryLog({EVENTS: 1})
    owned = claimed(log)
    started(owned)
    flushed(owned, log)
    claimed(log)
    assert [await claimed_in(log, CODEC, EVENTS, 0, at, at + 1) for at in range(4)] == [True, False, False, True]
    assert await claimed_in(log, CODEC, EVENTS, 0, 1, 4)
    assert not await claimed_in(log, CODEC, EVENTS, 0, 1, 3)
    assert not await claimed_in(log, CODEC, EVENTS, 0, 2, 2)
