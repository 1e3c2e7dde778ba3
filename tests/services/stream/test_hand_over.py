"""A partition changes hands while calls are under way and their owner is alive: what they give is not lost.

The grace of the new owner is as long as a test wants: with PATIENT, only a handed-over result goes on with the run.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import HandOverModelReply, HandOverToolResult
from loomlog.schemas.generated.run_events import ModelCallFailed, ModelReplied, ToolReturned
from loomlog.services.core.run.react import CallModel
from loomlog.services.stream.ownership import leadership, owner
from tests.services.stream.hosted import Hosted
from tests.services.stream.ledger_world import RUN, LedgerWorld
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import CODEC, World

Worlds = Callable[..., World]
FIRST = ("model", 1, 0, 1)
PATIENT = 3_600.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "HANDOVER_GRACE_S", PATIENT)


def handed_over(world: World) -> list[Any]:
    """The commands that carried results."""
    commands = [CODEC.decode(record.value or b"").record for record in world.log.records[TOPICS.commands, 0]]
    return [command for command in commands if isinstance(command, HandOverModelReply | HandOverToolResult)]


def held(world: World, *keys: Any) -> dict[Any, asyncio.Event]:
    """Calls of these keys return when their event is set."""
    gates = {key: asyncio.Event() for key in keys}

    async def hold(effect: Any) -> None:
        if effect.key in gates:
            await gates[effect.key].wait()

    world.on_effect = hold
    return gates


async def rebalanced(world: World) -> tuple[Hosted, Hosted]:
    """Host a has given its partition up in the middle of the run's first call; b has it."""
    first, second = world.host("a"), world.host("b", owns=[])
    world.start_run("r_x")
    await world.until(lambda: world.begun["r_x", FIRST] == 1)
    first.reassign()
    await world.until(lambda: not first.host.owners)
    second.reassign(0)
    await world.until(second.partition)
    return first, second


def model_calls(world: World) -> Counter[tuple[str, int]]:
    """How often each turn was asked of a model, over all attempts and hosts."""
    counter: Counter[tuple[str, int]] = Counter()
    for (run_id, key), times in world.begun.items():
        if key[0] == "model":
            counter[run_id, key[1]] += times
    return counter


async def test_a_model_call_that_outlasts_a_rebalance_is_taken_by_the_next_owner(
    world_of: Worlds, patient: None
) -> None:
    world = world_of(turns=1)
    gates = held(world, FIRST)
    first, _ = await rebalanced(world)
    gates[FIRST].set()
    story = await world.finished("r_x")
    assert set(model_calls(world).values()) == {1}
    assert not any(isinstance(event, ModelCallFailed) for event in story.runs["r_x"].events)
    (command,) = handed_over(world)
    assert (command.turn, command.attempt, command.envelope.tenant) == (1, 1, "t")
    assert command.envelope.subject == first.name


async def test_what_is_handed_over_too_late_changes_nothing(world_of: Worlds) -> None:
    world = world_of(turns=1)
    second_attempt = ("model", 1, 0, 2)
    gates = held(world, FIRST, second_attempt)
    _, second = await rebalanced(world)
    await world.until(lambda: world.begun["r_x", second_attempt] == 1)
    gates[FIRST].set()
    await world.until(lambda: handed_over(world))
    await world.until(lambda: second.handled(1))
    assert not any(isinstance(event, ModelReplied) for event in world.story().runs["r_x"].events)
    gates[second_attempt].set()
    story = await world.finished("r_x")
    (replied,) = [event for event in story.runs["r_x"].events if isinstance(event, ModelReplied)]
    assert replied.attempt == 2


async def test_a_result_that_was_on_the_wire_of_a_fenced_owner_is_not_lost(world_of: Worlds, patient: None) -> None:
    """It was paused, taken for dead, and wakes up: its append is stale, the answer it held is not."""
    world = world_of(turns=1)
    gates = held(world, FIRST)
    zombie = world.host("zombie")
    world.start_run("r_x")
    await world.until(lambda: world.begun["r_x", FIRST] == 1)
    zombie.wire.open.clear()
    gates[FIRST].set()
    await world.until(lambda: zombie.host.flusher.in_flight_since)
    second = world.host("b")
    await world.until(second.partition)
    zombie.reassign()
    zombie.wire.open.set()
    story = await world.finished("r_x")
    await world.until(lambda: world.story().stale)
    assert set(model_calls(world).values()) == {1}
    assert not any(isinstance(event, ModelCallFailed) for event in story.runs["r_x"].events)


async def test_a_result_whose_acknowledgement_was_lost_is_given_again_and_taken_once(world_of: Worlds) -> None:
    world = world_of(turns=3)
    hosted = world.host()
    hosted.wire.lose_acks = 0.3
    hosted.wire.lose_batches = 0.2
    for number in range(10):
        world.start_run(f"r_{number}")
    await world.finished(*(f"r_{number}" for number in range(10)))
    assert set(model_calls(world).values()) == {1}


async def test_the_former_owner_of_a_partition_that_has_been_quiet_is_not_waited_for(
    world_of: Worlds, patient: None
) -> None:
    world = world_of(turns=1)
    held(world, FIRST)
    hosted = world.host()
    world.start_run("r_x")
    await world.until(lambda: world.begun["r_x", FIRST] == 1)
    await hosted.kill()
    world.on_effect = None
    world.now += owner.PREDECESSOR_ALIVE_MS
    world.host("b")
    await world.finished("r_x")
    assert world.begun["r_x", ("model", 1, 0, 2)] == 1


async def test_calls_that_may_be_repeated_wait_for_nobody(world_of: Worlds, patient: None) -> None:
    world = world_of(turns=2)
    hosted = world.host()
    stuck = asyncio.Event()

    async def hold(effect: Any) -> None:
        if not isinstance(effect, CallModel):
            await stuck.wait()

    world.on_effect = hold
    names = [f"r_{number}" for number in range(6)]
    for name in names:
        world.start_run(name)
    await world.until(lambda: {run for run, key in world.begun if key[0] == "tool"} == set(names))
    await hosted.kill()
    world.on_effect = None
    second = world.host("b")
    await world.until(second.partition)
    await world.ticks(300)
    unsafe = {
        run_id
        for run_id, run in world.story().runs.items()
        for event in run.events
        if getattr(event, "effect_class", "") == "unsafe"
    }
    assert unsafe
    assert set(world.story().live) == unsafe


async def test_an_unsafe_call_that_outlasts_a_rebalance_has_its_own_result(tmp_path: Path, patient: None) -> None:
    world = LedgerWorld(tmp_path)
    world.hold_calls(after_the_effect=True)
    first, second = world.host("a"), world.host("b", owns=[])
    world.start_run(RUN)
    await world.until(lambda: world.at_the_gate == 1)
    first.reassign()
    second.reassign(0)
    await world.until(second.partition)
    assert world.gate is not None
    world.gate.set()
    await world.finished(RUN)
    assert world.lines == {f"{RUN}:1.0": 1}
    assert (world.result().outcome, world.result().attempt) == ("ok", 1)
    await world.close()


async def test_a_handed_over_result_answers_a_call_that_already_waits_for_a_person(tmp_path: Path) -> None:
    world = LedgerWorld(tmp_path, definition={"unknown_outcome": "ask"})
    world.hold_calls(after_the_effect=True)
    first, second = world.host("a"), world.host("b", owns=[])
    world.start_run(RUN)
    await world.until(lambda: world.at_the_gate == 1)
    first.reassign()
    second.reassign(0)
    await world.until(lambda: any(type(e).__name__ == "ToolOutcomeAsked" for e in world.story().runs[RUN].events))
    assert world.gate is not None
    world.gate.set()
    await world.finished(RUN)
    assert (world.result().outcome, world.result().settled_by) == ("ok", "")
    await world.close()


@pytest.mark.parametrize("seed", range(4))
async def test_a_rolling_restart_under_load_repeats_no_model_call_and_leaves_nothing_unknown(
    world_of: Worlds, patient: None, seed: int
) -> None:
    world = world_of(turns=4, seed=seed, effect_delay=6)
    names = [f"r_{number}" for number in range(30)]
    for name in names:
        world.start_run(name)
    present = world.host("h0")
    for number in range(1, 5):
        await world.ticks(25)
        assert await present.host.drain(5.0)
        await present.kill()
        present = world.host(f"h{number}")
    story = await world.finished(*names)
    assert set(model_calls(world).values()) == {1}
    results = [event for run in story.runs.values() for event in run.events if isinstance(event, ToolReturned)]
    assert results
    assert {event.outcome for event in results} == {"ok"}
    failed = [event for run in story.runs.values() for event in run.events if isinstance(event, ModelCallFailed)]
    assert not failed
