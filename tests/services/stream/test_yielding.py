"""A partition that moves: its owner lets the calls under way end, writes down what it did not begin, and lets go."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import CallNotBegun, ModelCallFailed, ModelCallRequested, RunCompleted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.core.run.react import CallModel
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.ownership import assignment
from loomlog.services.stream.ownership.drain import DRAIN_S
from loomlog.services.stream.partition.partition import Partition
from tests.services.stream.hosted import Hosted
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]


def owners(world: World) -> list[str]:
    """Who claimed partition 0, in order."""
    actual = [local_codec().decode(record.value or b"").record for record in world.log.records[TOPICS.events, 0]]
    return [claim.owner for claim in actual if isinstance(claim, Claim)]


async def at_work(world: World, *, drain_s: float = DRAIN_S) -> tuple[Hosted, Hosted]:
    """The owner a of partition 0, in a model call of r_x; and b."""
    first = world.host("a", owns=[], stands_by=True, drain_s=drain_s)
    second = world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running_count)
    return first, second


async def test_a_call_under_way_ends_before_the_partition_moves_and_is_made_once(world_of: Worlds) -> None:
    world = world_of(turns=2)
    opened = gate(world)
    first, second = await at_work(world)
    world.share_out(a=[], b=[0])
    await world.until(lambda: first.host.flusher.leaving)
    await world.ticks(100)
    assert owners(world) == ["a"], "it is not claimed while the call is under way"
    opened.set()
    story = await world.finished("r_x")
    assert owners(world) == ["a", "b"]
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    assert world.begun["r_x", ("model", 1, 0, 1)] == 1
    assert world.lifelines.answers[-1] == ("a", 0, "yielded")
    assert first.host.owners == {}
    assert second.host.metrics.claims_for == {"assigned": 1}


async def test_what_was_due_meanwhile_is_not_begun_by_the_one_who_leaves(world_of: Worlds) -> None:
    world = world_of(turns=2)
    opened = gate(world, kinds=CallModel)
    first, _ = await at_work(world)
    world.share_out(a=[], b=[0])
    await world.until(lambda: first.host.flusher.leaving)
    opened.set()
    story = await world.finished("r_x")
    events = story.runs["r_x"].events
    noted = [event for event in events if isinstance(event, CallNotBegun)]
    assert len(noted) == 1
    assert all(count == 1 for count in world.begun.values()), "every call was begun once, by one of the two"


@pytest.mark.parametrize("seed", range(8))
async def test_what_a_look_up_leads_to_while_a_partition_is_given_up_is_written_down_too(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A start that waits for a look-up when the last call has ended: its first model call is due and begins nowhere."""
    random, prepare = Random(seed), RunCommandHandler.prepare

    async def later(self: RunCommandHandler, record: LogRecord, command: Any, partition: Partition) -> PendingDecision:
        for _ in range(random.randint(1, 40)):
            await asyncio.sleep(0)
        return await prepare(self, record, command, partition)

    monkeypatch.setattr(RunCommandHandler, "prepare", later)
    world = world_of(turns=4, seed=seed, effect_delay=6)
    both = [world.host(name, owns=[], stands_by=True) for name in "ab"]
    for hosted in both:
        hosted.wire.delay = 4
    world.share_out(a=[0], b=[])
    for number in range(40):
        world.start_run(f"r_{number}")
        await world.ticks(random.randint(0, 8))
        if number % 7 == 6:
            world.share_out(**({"a": [0], "b": []} if number % 2 else {"a": [], "b": [0]}))
    story = await world.finished(*(f"r_{number}" for number in range(40)))
    assert set(owners(world)) == {"a", "b"}
    failed = [event for run in story.runs.values() for event in run.events if isinstance(event, ModelCallFailed)]
    assert not failed
    assert set(world.begun.values()) == {1}


async def test_a_result_that_waits_for_a_claim_is_waited_for(world_of: Worlds) -> None:
    world = world_of(turns=1)
    opened = gate(world)
    first, _ = await at_work(world)
    owner = first.host.owners[0]
    first.wire.open.clear()
    first.host.ownership.lost(owner, "unknown_outcome")
    opened.set()
    await world.until(lambda: not first.work.effect_runner.running_count)
    draining = asyncio.get_running_loop().create_task(first.host.drain(5.0))
    await world.ticks(50)
    assert not draining.done()
    first.wire.open.set()
    assert await draining
    story = world.story()
    assert [type(event) for event in story.runs["r_x"].events][-1] is RunCompleted


async def test_a_call_that_takes_too_long_does_not_hold_the_partition(world_of: Worlds) -> None:
    world = world_of(turns=1)
    opened = gate(world)
    await at_work(world, drain_s=0.05)
    world.share_out(a=[], b=[0])
    await world.until(lambda: owners(world) == ["a", "b"])
    opened.set()
    story = await world.finished("r_x")
    asked = [event for event in story.runs["r_x"].events if isinstance(event, ModelCallRequested)]
    assert len(asked) == 1, "its result was handed over in time"


async def test_an_owner_that_is_gone_is_not_waited_for(world_of: Worlds) -> None:
    world = world_of(turns=1)
    gate(world)
    first, second = await at_work(world)
    await first.kill()
    world.on_effect = None
    second.reassign(0)
    await world.finished("r_x")
    assert world.lifelines.answers == [("a", 0, "gone")]


async def test_a_partition_that_is_to_stay_is_not_given_to_whoever_asks(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "ASSIGNMENT_WAIT_S", 0.05)
    world = world_of(turns=1)
    opened = gate(world)
    first, _ = await at_work(world)
    await first.host.ownership.handover_requested(0)
    assert first.partition() is not None
    opened.set()
    await world.finished("r_x")
    assert owners(world) == ["a"]


async def test_a_partition_that_comes_back_at_once_is_claimed_again(world_of: Worlds) -> None:
    world = world_of(turns=2)
    opened = gate(world)
    first, _ = await at_work(world)
    world.share_out(a=[], b=[])
    await world.until(lambda: first.host.flusher.leaving)
    world.share_out(a=[0], b=[])
    opened.set()
    story = await world.finished("r_x")
    assert owners(world) == ["a", "a"]
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    assert world.begun["r_x", ("model", 1, 0, 1)] == 1
