"""Hosts that die, lose acknowledgements, are overtaken or fight: the log alone decides, and every run ends once."""

from collections.abc import Callable
from typing import Any

import pytest

from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.run_events import InputReceived, ModelCallFailed, RunCompleted, ToolReturned
from loomlog.services.core.run.react import CallTool
from loomlog.services.stream import flusher as flusher_module
from loomlog.services.stream.ownership import assignment, watchdog
from tests.services.stream.judge import every_start_has_its_run
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]
NAMES = tuple(f"r_{number}" for number in range(6))


def with_runs(world: World) -> World:
    for name in NAMES:
        world.start_run(name)
    return world


async def judged_end(world: World) -> None:
    """Every start of NAMES has its one run, and all of them ended."""
    story = await world.finished(*NAMES)
    assert set(story.runs) == set(NAMES)
    every_start_has_its_run(world.log, story, TOPICS.commands, TOPICS.dead_letters, world.partitions)


@pytest.mark.parametrize("ticks", [*range(40), *range(40, 120, 5)])
async def test_a_host_that_dies_at_any_moment_is_followed_by_one_that_finishes(world_of: Worlds, ticks: int) -> None:
    world = with_runs(world_of(partitions=2, seed=ticks, effect_delay=2))
    first = world.host("a")
    first.wire.delay = 2
    await world.ticks(ticks)
    await first.kill()
    world.host("b")
    await judged_end(world)


async def test_what_was_on_the_wire_when_a_host_died_may_land_and_counts(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    await world.until(first.partition)
    world.start_run("r_x")
    await world.until(lambda: world.has("r_x"))  # it landed; nobody was told
    await first.kill()
    world.host("b")
    story = await world.finished("r_x")
    assert story.stale == 0
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)


async def test_a_lost_acknowledgement_means_reading_the_log_again(world_of: Worlds) -> None:
    world = world_of(effect_delay=2)
    hosted = world.host()
    await world.until(hosted.partition)
    world.log.lose_acks = 1
    with_runs(world)
    await judged_end(world)
    assert hosted.host.metrics.unknown_outcomes == 1
    assert hosted.host.metrics.claims == 2


async def test_a_claim_that_cannot_be_appended_is_tried_again(world_of: Worlds) -> None:
    world = with_runs(world_of())
    hosted = world.host()
    hosted.wire.fails = UnknownOutcome("no broker")
    await world.ticks(30)
    assert hosted.partition() is None
    hosted.wire.fails = None
    await judged_end(world)


@pytest.mark.parametrize("settled_s", [-1.0, 3_600.0])
async def test_having_held_a_partition_for_long_forgets_earlier_failures_to_hold_it(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch, settled_s: float
) -> None:
    monkeypatch.setattr(assignment, "RECLAIM_BACKOFF_S", (0.0, 3_600.0))
    monkeypatch.setattr(assignment, "SETTLED_S", settled_s)
    world = world_of(turns=1)
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.host.ownership.lost(hosted.host.owners[0], "unknown_outcome")
    await world.until(hosted.partition)
    hosted.host.ownership.lost(hosted.host.owners[0], "unknown_outcome")
    await world.ticks(100)
    assert (hosted.partition() is not None) == (settled_s < 0)


async def test_calls_outlive_a_claim_and_their_results_count(world_of: Worlds) -> None:
    """The same process claims again: its calls are not made a second time, and no attempt is recorded as lost."""
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    world.start_run("r_y")
    await world.until(lambda: hosted.work.effect_runner.running_count == 2)
    hosted.host.ownership.lost(hosted.host.owners[0], "unknown_outcome")
    await world.until(lambda: hosted.host.metrics.claims == 2)
    opened.set()
    story = await world.finished("r_x", "r_y")
    for run in story.runs.values():
        assert not any(isinstance(event, ModelCallFailed) for event in run.events)
    assert set(world.begun.values()) == {1}


async def test_a_result_that_comes_while_its_partition_is_claimed_again_counts(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    hosted.wire.open.clear()
    hosted.host.ownership.lost(hosted.host.owners[0], "unknown_outcome")
    opened.set()
    await world.until(lambda: hosted.work.effect_runner.running_count == 0)  # the result has nowhere to go yet
    assert hosted.partition() is None
    hosted.wire.open.set()
    story = await world.finished("r_x")
    assert not any(isinstance(event, ModelCallFailed) for event in story.runs["r_x"].events)
    assert world.begun["r_x", ("model", 1, 0, 1)] == 1


async def test_an_overtaken_host_changes_nothing_with_what_it_still_had_on_the_wire(world_of: Worlds) -> None:
    world = world_of(turns=2)
    zombie = world.host("zombie")
    await world.until(zombie.partition)
    world.start_run("r_x")
    await world.until(lambda: zombie.work.effect_runner.running_count or world.has("r_x"))
    zombie.wire.open.clear()  # it is stopped; its next batch leaves only when it wakes up
    world.start_run("r_y")
    await world.until(lambda: zombie.host.flusher.in_flight_since)
    owner = world.host("owner")
    story = await world.finished("r_x", "r_y")
    zombie.reassign()
    zombie.wire.open.set()
    await world.until(lambda: zombie.host.metrics.fenced == 1 or not zombie.host.owners)
    await world.ticks(10)
    after = world.story()
    assert after.stale > 0
    assert {name: len(run.events) for name, run in after.runs.items()} == {
        name: len(run.events) for name, run in story.runs.items()
    }
    assert owner.host.metrics.fenced == 0


async def test_the_owner_steps_over_stale_records_and_goes_on_without_a_new_claim(world_of: Worlds) -> None:
    world = world_of(turns=2)
    zombie = world.host("zombie")
    await world.until(zombie.partition)
    zombie.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: zombie.host.flusher.in_flight_since)
    owner = world.host("owner")
    opened = gate(world)
    await world.until(lambda: owner.work.effect_runner.running_count == 1)
    zombie.reassign()
    zombie.wire.open.set()
    await world.until(lambda: world.story().stale)
    opened.set()
    story = await world.finished("r_x")
    assert story.claims == 2
    assert owner.host.metrics.claims == 1


async def test_a_fenced_host_claims_again_only_what_it_is_still_told_to_own(world_of: Worlds) -> None:
    world = world_of(partitions=2, turns=1)
    first = world.host("a")
    await world.until(lambda: first.partition(0) and first.partition(1))
    second = world.host("b", owns=[1])
    await world.until(lambda: second.partition(1))
    first.reassign(0)
    with_runs(world)
    await judged_end(world)
    assert set(first.host.owners) == {0}
    assert first.partition(1) is None


async def test_effects_of_the_loser_are_never_begun_after_it_was_fenced(world_of: Worlds) -> None:
    world = world_of(turns=1)
    loser = world.host("loser")
    await world.until(loser.partition)
    loser.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: loser.host.flusher.in_flight_since)
    world.host("winner")
    begun: list[Any] = []

    async def note(effect: Any) -> None:
        begun.append(effect.key)

    world.on_effect = note
    await world.finished("r_x")
    loser.reassign()
    loser.wire.open.set()
    await world.ticks(30)
    assert begun == [("model", 1, 0, 1)]


async def test_what_the_outside_did_not_answer_is_visible_after_a_take_over(world_of: Worlds) -> None:
    world = world_of(turns=3)
    first = world.host("a")
    gate(world, kinds=CallTool)
    with_runs(world)
    await world.until(lambda: {run for run, key in world.begun if key[0] == "tool"} == set(NAMES))
    await first.kill()
    world.on_effect = None
    world.host("b")
    story = await world.finished(*NAMES)
    attempts = [event.attempt for run in story.runs.values() for event in run.events if hasattr(event, "effect_class")]
    unknown = [
        event
        for run in story.runs.values()
        for event in run.events
        if isinstance(event, ToolReturned) and event.outcome == "outcome_unknown"
    ]
    assert 2 in attempts
    assert unknown


async def test_a_gap_that_cannot_be_read_is_an_unknown_outcome_and_no_crash(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    await world.until(hosted.partition)
    world.log.put(TOPICS.events, 0, [ProducerRecord(key=None, value=b"somebody else's")])
    read = world.log.read
    failures = [Transient("the broker is away", kind="unavailable")]

    async def unreadable(*where: Any) -> Any:
        if failures and hosted.host.metrics.claims == 1:
            raise failures.pop()
        return await read(*where)

    world.log.read = unreadable  # type: ignore[method-assign, assignment]  # the fault is asked for
    world.start_run("r_x")
    await world.finished("r_x")
    assert hosted.host.metrics.unknown_outcomes == 1


async def test_bytes_of_others_in_a_gap_are_no_claim_and_no_reason_to_stop(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    await world.until(hosted.partition)
    for value in (b"garbage", b"", None, b"\0\0\0\0\7"):
        world.log.put(TOPICS.events, 0, [ProducerRecord(key=None, value=value)])
    world.start_run("r_x")
    await world.finished("r_x")
    assert hosted.host.metrics.claims == 1
    assert hosted.host.metrics.fenced == 0


async def test_claims_are_found_in_a_gap_and_nowhere_else(world_of: Worlds) -> None:
    world = world_of()
    first = world.host("a")
    await world.until(first.partition)
    second = world.host("b", owns=[])
    second.reassign(0)
    await world.until(second.partition)
    find = flusher_module.has_claim_between
    assert await find(world.log, first.work.codec, TOPICS.events, 0, 1, 2)
    assert not await find(world.log, first.work.codec, TOPICS.events, 0, 2, 2)
    assert not await find(world.log, first.work.codec, TOPICS.events, 0, 2, 9)


async def test_a_text_sent_twice_is_received_once_although_the_partition_changes_hands(world_of: Worlds) -> None:
    # Found by the simulation: the second copy leaves no event, so a new owner reads it again.
    world = world_of(turns=1)
    first = world.host("a")
    world.start_run("r_talk", interactive=True)
    world.say("r_talk", "hello")
    again = world.say("r_talk", "hello")
    await world.until(lambda: first.handled(again))
    await world.until(first.settled)
    await first.kill()
    second = world.host("b")
    await world.until(lambda: second.handled(again))
    world.cancel_run("r_talk")
    story = await world.finished("r_talk")
    texts = [event.text for event in story.runs["r_talk"].events if isinstance(event, InputReceived)]
    assert texts == ["hello"]


async def test_an_owner_with_nothing_to_append_notices_that_another_one_claimed_and_left(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by the simulation: the one who was to own the partition never appended again, so it never
    # learnt that it was fenced, and the run that the other began waited for ever.
    monkeypatch.setattr(watchdog, "QUIET_CHECK_EVERY_S", 0.01)
    world = world_of()
    stays = world.host("stays")
    await world.until(lambda: stays.partition() is not None)
    leaves = world.host("leaves", owns=())
    hold = gate(world)
    leaves.reassign(0)
    await world.until(lambda: leaves.partition() is not None)
    stays.host.topic_sets[0].commands.pause([0])  # as if it had answered the command from what the rows say
    world.start_run("r_left")
    await world.until(lambda: world.has("r_left"))
    await leaves.kill()
    hold.set()
    await world.finished("r_left")
