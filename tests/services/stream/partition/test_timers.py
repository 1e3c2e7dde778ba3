"""Alarms on a log in memory: runs fail when their time is over, whoever owns them then."""

import asyncio
from collections.abc import Callable
from typing import Any

from loomlog.schemas.generated.run_events import RunFailed
from loomlog.services.core.run.react import CallModel
from loomlog.services.stream.partition.timers import Timers
from tests.services.stream.world import NOW, World

Worlds = Callable[..., World]


def never_answered(world: World) -> None:
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if isinstance(effect, CallModel):
            await held.wait()

    world.on_effect = hold


async def test_a_run_whose_model_never_answers_fails_when_its_time_is_over(world_of: Worlds) -> None:
    world = world_of()
    never_answered(world)
    hosted = world.host()
    world.start_run("r_x", run_timeout_s=60)
    await world.until(lambda: world.begun)
    await world.ticks(20)
    assert not world.story().runs["r_x"].is_over
    world.now += 60_000
    hosted.host.fire_due_timers()
    await world.finished("r_x")
    assert isinstance(world.story().runs["r_x"].events[-1], RunFailed)


async def test_the_next_owner_sets_the_alarm_again(world_of: Worlds) -> None:
    world = world_of()
    never_answered(world)
    first = world.host("a")
    world.start_run("r_x", run_timeout_s=60)
    await world.until(lambda: world.begun)
    await first.kill()
    world.now += 61_000
    world.host("b")
    await world.finished("r_x")
    assert isinstance(world.story().runs["r_x"].events[-1], RunFailed)


async def test_alarms_ring_in_their_order_and_only_when_it_is_time() -> None:
    now, rung = NOW, list[tuple[int, str]]()
    alarms = Timers(lambda: now, lambda partition, name: rung.append((partition, name)))
    alarms.set(NOW + 10, 0, "later")
    alarms.set(NOW + 5, 1, "sooner")
    alarms.fire_due()
    assert rung == []
    now = NOW + 7
    alarms.fire_due()
    assert rung == [(1, "sooner")]
    now = NOW + 11
    alarms.fire_due()
    assert rung == [(1, "sooner"), (0, "later")]


async def test_an_earlier_alarm_is_not_kept_waiting_by_a_later_one() -> None:
    loop, rung = asyncio.get_running_loop(), asyncio.Event()
    start = loop.time()
    alarms = Timers(lambda: int((loop.time() - start) * 1000), lambda partition, name: rung.set())
    alarms.set(60_000, 0, "later")
    task = asyncio.create_task(alarms.run())
    await asyncio.sleep(0)
    alarms.set(1, 0, "sooner")
    async with asyncio.timeout(30):
        await rung.wait()
    task.cancel()
