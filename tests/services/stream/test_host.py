"""Hosts on a log in memory: what is accepted is finished once; ownership comes and goes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunRefused
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.state import Ended
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.stream import host as host_module
from tests.services.stream.judge import every_start_has_its_run
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import World

Worlds = Callable[..., World]


def gate(world: World, *, kinds: type[Any] | tuple[type[Any], ...] = object) -> asyncio.Event:
    """Calls of these kinds are held until the event is set."""
    opened = asyncio.Event()

    async def hold(effect: Any) -> None:
        if isinstance(effect, kinds):
            await opened.wait()

    world.on_effect = hold
    return opened


async def test_many_runs_finish_with_dense_histories(world_of: Worlds) -> None:
    world = world_of(partitions=4, effect_delay=3)
    world.host()
    names = [f"r_{number:03d}" for number in range(60)]
    for name in names:
        world.start_run(name)
    story = await world.finished(*names)
    assert set(story.runs) == set(names)
    assert story.stale == 0
    assert story.claims == 4
    assert max(world.begun.values()) == 1


async def test_a_batch_takes_along_whatever_was_decided_while_the_wire_was_busy(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    for number in range(50):
        world.start_run(f"r_{number}")
    await world.finished(*(f"r_{number}" for number in range(50)))
    assert hosted.host.flusher.flushes < 50


async def test_a_repeated_start_gives_one_run_however_often_and_when_it_comes(world_of: Worlds) -> None:
    world = world_of(effect_delay=2)
    world.host()
    command = world.start_run("r_x")
    world.put(command)
    await world.until(lambda: world.has("r_x"))
    world.put(command)
    await world.finished("r_x")
    offset = world.put(command)
    await world.until(lambda: world.hosts[0].handled(offset))
    assert len(world.story().runs) == 1


async def test_a_start_repeated_while_its_end_is_on_the_wire_gives_no_second_run(world_of: Worlds) -> None:
    """The refusal ends the run at once, long before anybody can read it in the log."""
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    command = world.start_run("r_x", agent="nobody")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    world.put(command)
    world.put(command)
    await world.ticks(20)
    hosted.wire.open.set()
    story = await world.finished("r_x")
    await world.until(lambda: hosted.handled(2))
    assert [type(event) for event in story.runs["r_x"].events] == [RunRefused]
    assert len(world.story().runs["r_x"].events) == 1


async def test_a_cancel_ends_the_run_and_stops_its_calls(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    world.cancel_run("r_x")
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCancelled)
    await world.until(lambda: hosted.work.effect_runner.running_count == 0)


async def test_a_command_of_another_tenant_touches_nothing(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    world.cancel_run("r_x", tenant="other")
    world.say("r_x", "hello", tenant="other")
    await world.until(lambda: hosted.handled(2))
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)


async def test_a_run_goes_on_with_the_conversation_of_its_session(world_of: Worlds) -> None:
    world = world_of(turns=1)
    world.host("a")
    world.start_run("r_tok", session_id="")
    await world.finished("r_tok")
    world.start_run("r_tok-2", session_id="s_tok", prompt="and?")
    await world.finished("r_tok-2")
    await world.hosts[0].kill()
    world.host("b")  # this one has it from the log alone
    world.start_run("r_tok-3", session_id="s_tok", prompt="so?")
    story = await world.finished("r_tok-3")
    continues = story.runs["r_tok-3"].events[0].continues
    assert continues.run_id == "r_tok-2"
    assert (continues.first_offset, continues.last_offset) == (
        story.runs["r_tok-2"].offsets[0],
        story.runs["r_tok-2"].offsets[-1],
    )
    past = world.hosts[1].past
    await world.until(lambda: past.cached("r_tok-3"))
    kept = past.cached("r_tok-3")
    assert isinstance(kept, Ended)
    assert len(kept.facts.messages) == 6


async def test_a_start_in_a_session_whose_last_run_is_just_ending_waits_for_it(world_of: Worlds) -> None:
    """The end can be read in the log before its acknowledgement reaches the owner; who asks then is not too early."""
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_tok")
    opened = gate(world)
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    hosted.wire.open.clear()
    opened.set()
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    world.start_run("r_tok-2", session_id="s_tok", agent_id="mine")
    await world.ticks(20)
    hosted.wire.open.set()
    story = await world.finished("r_tok", "r_tok-2")
    assert story.runs["r_tok-2"].events[0].continues.run_id == "r_tok"


async def test_what_waits_for_a_look_up_holds_up_its_own_key_only(world_of: Worlds) -> None:
    world = world_of(turns=1)
    world.host()
    world.index.limits[0] = -1
    world.start_run("r_slow", session_id="s_slow")  # nobody knows this session, so the index is asked
    offset = world.cancel_run("r_slow")
    world.start_run("r_quick")
    await world.finished("r_quick")
    assert not world.has("r_slow")
    assert not world.hosts[0].handled(offset)
    del world.index.limits[0]
    story = await world.finished("r_slow")
    assert isinstance(story.runs["r_slow"].events[0], RunRefused)
    await world.until(lambda: world.hosts[0].handled(offset))


async def test_a_lost_partition_is_given_up_and_another_host_finishes_its_runs(world_of: Worlds) -> None:
    world = world_of(partitions=2)
    first = world.host("a", owns=[0, 1])
    second = world.host("b", owns=[])
    opened = gate(world)
    names = [f"r_{number}" for number in range(10)]
    for name in names:
        world.start_run(name)
    await world.until(lambda: first.work.effect_runner.running_count == 10)
    first.reassign(0)
    second.reassign(1)
    opened.set()
    story = await world.finished(*names)
    assert set(first.host.owners) == {0}
    assert set(second.host.owners) == {1}
    assert story.stale == 0


async def test_a_call_of_a_partition_that_was_given_up_goes_on_for_when_it_comes_back(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    hosted.reassign()
    await world.until(lambda: not hosted.host.owners)
    hosted.reassign(0)
    await world.until(hosted.partition)
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    assert set(world.begun.values()) == {1}


async def test_a_drain_lets_calls_finish_and_takes_no_more_commands(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    draining = asyncio.get_running_loop().create_task(hosted.host.drain(5.0))
    await world.ticks(3)
    world.start_run("r_y")
    await world.ticks(50)
    assert not draining.done()
    opened.set()
    assert await draining
    story = await world.finished("r_x")
    assert set(story.runs) == {"r_x"}


async def test_a_drain_that_takes_too_long_says_so(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    assert not await hosted.host.drain(0.0)


async def test_commands_stay_in_their_topic_while_too_many_decisions_wait(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "PENDING_COMMANDS_MAX", 10)
    monkeypatch.setattr(host_module, "PENDING_CHECK_S", 0.001)
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    for number in range(15):
        world.start_run(f"r_{number}")
        await world.ticks(5)
    for number in range(15, 40):
        world.start_run(f"r_{number}")
    await world.ticks(50)
    assert hosted.host.metrics.commands < 40
    hosted.wire.open.set()
    await world.finished(*(f"r_{number}" for number in range(40)))


async def test_intake_goes_on_when_what_waited_vanished_with_its_partition(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No flush would ever wake it: everything that waited was lost, and nothing of it is in the log."""
    monkeypatch.setattr(host_module, "PENDING_COMMANDS_MAX", 5)
    monkeypatch.setattr(host_module, "PENDING_CHECK_S", 0.001)
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    for number in range(20):
        world.start_run(f"r_{number}")
    await world.until(lambda: hosted.host.metrics.commands >= 20)
    await world.ticks(20)
    hosted.wire.lose_batches = 1.0
    hosted.wire.open.set()
    await world.until(lambda: hosted.host.metrics.unknown_outcomes == 1)
    hosted.wire.lose_batches = 0.0
    await world.finished(*(f"r_{number}" for number in range(20)))


async def test_commands_that_wait_for_the_index_are_bounded_too(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "PENDING_COMMANDS_MAX", 5)
    monkeypatch.setattr(host_module, "PENDING_CHECK_S", 0.001)
    world = world_of()
    hosted = world.host()
    world.index.limits[0] = -1
    for number in range(30):
        world.start_run(f"r_{number}", session_id=f"s_{number}")
        await world.ticks(3)
    await world.ticks(100)
    assert hosted.host.metrics.commands < 30
    del world.index.limits[0]
    await world.finished(*(f"r_{number}" for number in range(30)))


async def test_an_unsafe_call_is_begun_once_however_often_the_owner_dies(world_of: Worlds) -> None:
    world = world_of(turns=4)
    names = [f"r_{number}" for number in range(12)]
    for name in names:
        world.start_run(name)
    unsafe: list[tuple[str, Any]] = []

    async def note(effect: Any) -> None:
        if isinstance(effect, CallTool) and effect.effect_class == "unsafe":
            unsafe.append((effect.run_id, (effect.turn, effect.index)))

    world.on_effect = note
    for ticks in (23, 31, 17, 41, 29):
        hosted = world.host()
        await world.ticks(ticks)
        await hosted.kill()
    world.host()
    story = await world.finished(*names)
    every_start_has_its_run(world.log, story, TOPICS.commands, TOPICS.dead_letters, 1)
    assert unsafe
    assert len(unsafe) == len(set(unsafe))


async def test_a_family_is_what_the_host_drives(world_of: Worlds) -> None:
    assert world_of().host().work.family.name == RunFamily.name
