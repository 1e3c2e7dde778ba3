"""A partition that moves: its owner lets the calls under way end, writes down what it did not begin, and lets go."""

from collections.abc import Callable

import pytest

from schemas.codec import local_codec
from schemas.run_events import CallNotBegun, ModelCallRequested, RunCompleted
from schemas.stream_events import Claim
from services.core.run.react import CallModel
from services.stream import ownership
from services.stream.drain import DRAIN_S
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import Hosted, World

Worlds = Callable[..., World]


def owners(world: World) -> list[str]:
    """Who claimed partition 0, in order."""
    found = [local_codec().decode(record.value or b"").record for record in world.log.records[TOPICS.events, 0]]
    return [claim.owner for claim in found if isinstance(claim, Claim)]


async def at_work(world: World, *, drain_s: float = DRAIN_S) -> tuple[Hosted, Hosted]:
    """The owner a of partition 0, in a model call of r_x; and b."""
    first = world.host("a", owns=[], stands_by=True, drain_s=drain_s)
    second = world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.calls.under_way)
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
    assert second.host.figures.claims_for == {"assigned": 1}


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
    monkeypatch.setattr(ownership, "ASSIGNED_TOO_S", 0.05)
    world = world_of(turns=1)
    opened = gate(world)
    first, _ = await at_work(world)
    await first.host.ownership.asked(0)
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
