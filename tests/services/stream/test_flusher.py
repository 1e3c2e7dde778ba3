"""The one flusher: what became ready goes along, an acknowledgement releases effects.

What it does with gaps, claims and unknown outcomes in the life of a host is in test_host_failures.py.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.services.stream import flusher as flusher_module
from loomlog.services.stream.flusher import has_claim_between
from tests.services.stream.given import CODEC, EVENTS, claimed, flushed, started
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import PATIENCE_S, World

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
    await world.until(lambda: hosted.host.metrics.commands == 17)
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


# --- lingering -------------------------------------------------------------------------------------------------------


def lingering(monkeypatch: pytest.MonkeyPatch, *, share: float, max_s: float) -> None:
    monkeypatch.setattr(flusher_module, "LINGER_STEPS", share)
    monkeypatch.setattr(flusher_module, "LINGER_MAX_S", max_s)


ANY_SHARE = 1e9
"""Times what a flush takes: longer than a test, so that the longest linger alone counts."""
FOR_EVER_S = 10 * PATIENCE_S


def holding(world: World, run_id: str) -> asyncio.Event:
    """Calls of this run return when the event is set, all others at once."""
    let_go = asyncio.Event()

    async def on_effect(effect: Any) -> None:
        if effect.run_id == run_id:
            await let_go.wait()

    world.on_effect = on_effect
    return let_go


async def both_calls_begun(world: World, *names: str) -> None:
    """The runs were started by one flush and their first calls are under way."""
    for name in names:
        world.start_run(name)
    await world.until(lambda: {run_id for run_id, _ in world.begun} >= set(names))


async def test_results_of_calls_that_one_flush_began_travel_together(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingering(monkeypatch, share=ANY_SHARE, max_s=FOR_EVER_S)
    world = world_of(turns=1)
    let_go = holding(world, "r_late")
    hosted = world.host()
    await world.until(hosted.partition)
    await both_calls_begun(world, "r_quick", "r_late")
    partition = hosted.partition()
    assert partition is not None
    await world.until(lambda: partition.has_pending)
    await world.ticks(20)
    assert hosted.host.flusher.flushes == 1
    let_go.set()
    await world.finished("r_quick", "r_late")
    await world.until(hosted.settled)
    assert hosted.host.flusher.flushes == 2


async def test_a_slow_call_is_not_waited_for_longer_than_the_longest_linger(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingering(monkeypatch, share=ANY_SHARE, max_s=0.005)
    world = world_of(turns=3)
    let_go = holding(world, "r_slow")
    world.host()
    await both_calls_begun(world, "r_quick", "r_slow")
    await world.finished("r_quick")
    let_go.set()
    await world.finished("r_quick", "r_slow")


async def test_an_order_to_a_run_waits_for_no_call_of_others(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    lingering(monkeypatch, share=ANY_SHARE, max_s=FOR_EVER_S)
    world = world_of(turns=1)
    let_go = holding(world, "r_slow")
    hosted = world.host()
    await world.until(hosted.partition)
    await both_calls_begun(world, "r_quick", "r_slow")
    partition = hosted.partition()
    assert partition is not None
    await world.until(lambda: partition.has_pending)
    world.cancel_run("r_slow")
    await world.until(lambda: "r_slow" not in partition.aggregates and not partition.has_pending)
    await world.until(hosted.settled)
    let_go.set()


async def test_a_quick_flush_lingers_for_a_share_of_its_time_only(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingering(monkeypatch, share=0.5, max_s=FOR_EVER_S)
    world = world_of(turns=3)
    let_go = holding(world, "r_slow")
    world.host()
    await both_calls_begun(world, "r_quick", "r_slow")
    await world.finished("r_quick")
    let_go.set()
    await world.finished("r_quick", "r_slow")


async def test_a_call_of_an_earlier_flush_is_not_waited_for(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    lingering(monkeypatch, share=ANY_SHARE, max_s=0.0)
    world = world_of(turns=1)
    let_go = holding(world, "r_early")
    hosted = world.host()
    await both_calls_begun(world, "r_early")
    lingering(monkeypatch, share=ANY_SHARE, max_s=FOR_EVER_S)
    await both_calls_begun(world, "r_later")
    await world.finished("r_later")
    let_go.set()
    await world.finished("r_early", "r_later")
    await world.until(hosted.settled)
    assert hosted.host.flusher.flushes == 4


async def test_nothing_is_waited_for_once_every_call_is_back(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    lingering(monkeypatch, share=ANY_SHARE, max_s=FOR_EVER_S)
    world = world_of(turns=3)
    world.host()
    for name in ("r_a", "r_b", "r_c"):
        world.start_run(name)
    await world.finished("r_a", "r_b", "r_c")


async def test_a_claim_is_found_wherever_it_lies_in_the_gap() -> None:
    log = MemoryLog({EVENTS: 1})
    owned = claimed(log)
    started(owned)
    flushed(owned, log)
    claimed(log)
    assert [await has_claim_between(log, CODEC, EVENTS, 0, at, at + 1) for at in range(4)] == [True, False, False, True]
    assert await has_claim_between(log, CODEC, EVENTS, 0, 1, 4)
    assert not await has_claim_between(log, CODEC, EVENTS, 0, 1, 3)
    assert not await has_claim_between(log, CODEC, EVENTS, 0, 2, 2)
