"""Trees of runs on a log in memory: they finish, whatever is killed, and nothing is started twice or left behind."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.generated.run_commands import CancelTurn
from loomlog.schemas.generated.run_events import ChildRequested, RunStarted, ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, Spawn
from loomlog.schemas.ids import child_run_id, partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ChildrenRequested, CommandRefusal
from loomlog.services.core.run.react import NotifyParent
from loomlog.services.core.run.state import Ended, Parked
from loomlog.services.runtime.run import run_directory
from loomlog.services.stream.partition import fold
from tests.services.stream.families import add_families, drop_local_effects, family_script
from tests.services.stream.given import CODEC, EVENTS
from tests.services.stream.hosted import Hosted
from tests.services.stream.judge import Story
from tests.services.stream.world import World

Worlds = Callable[..., World]


def families(world: World, *trees: str) -> World:
    add_families(world.definitions, *trees)
    world.script = family_script
    return world


def lineage(story: Story) -> dict[str, str]:
    """Every run with its parent; each child is named by its parent exactly once, and begun exactly once."""
    named: dict[str, str] = {}
    for name, run in story.runs.items():
        for event in run.events:
            if isinstance(event, ChildRequested) and event.child_agent_id:
                assert event.child_run_id not in named, f"{event.child_run_id} is asked for twice"
                named[event.child_run_id] = name
    actual = {}
    for name, run in story.runs.items():
        first = run.events[0]
        assert isinstance(first, RunStarted)
        actual[name] = first.parent.run_id if first.parent is not None else ""
        assert actual[name] == named.get(name, ""), f"{name} says that its parent is {actual[name]}"
    assert set(named) <= set(story.runs)
    return actual


async def over(world: World, root: str = "r_x") -> Story:
    """The root has ended and so has everything else."""
    await world.finished(root)
    return await world.finished()


def results(story: Story, name: str) -> list[str]:
    return [event.text for event in story.runs[name].events if isinstance(event, ToolReturned)]


def ended(story: Story, name: str) -> tuple[str, str]:
    state = story.runs[name].state
    assert isinstance(state, Ended)
    return state.status, state.reason


async def test_a_parent_gets_the_words_of_its_children(world_of: Worlds) -> None:
    world = families(world_of())
    world.host()
    world.start_run("r_x", agent="pair")
    story = await over(world)
    assert set(lineage(story).values()) == {"", "r_x"}
    assert sorted(text.rpartition("\n")[2] for text in results(story, "r_x")) == ["leaf turn 1", "leaf turn 1"]


async def test_a_tree_is_its_parents_tenants_and_so_are_the_agents_and_keys_it_finds(world_of: Worlds) -> None:
    world = families(world_of())
    asked: list[Any] = []
    resolve = world.definitions.resolve

    def noted(agent: str, **more: Any) -> AgentDefinition | CommandRefusal:
        asked.append((more["tenant"], more["credentials"], more["operator_key_restricted"]))
        return resolve(agent, **more)

    world.definitions.resolve = noted  # type: ignore[method-assign]  # to see who is asked
    world.host()
    world.start_run("r_x", agent="pair", tenant="acme", credentials=("ACME_KEY",), operator_key_restricted=True)
    story = await over(world)
    assert len(story.runs) == 3
    records = [record for (topic, _), actual in world.log.records.items() if topic == EVENTS for record in actual]
    envelopes = [decoded.envelope for decoded in map(CODEC.decode, [record.value or b"" for record in records])]
    assert {envelope.tenant for envelope in envelopes if envelope is not None and envelope.aggregate} == {"acme"}
    assert len(asked) >= 3
    assert set(asked) == {("acme", ("ACME_KEY",), True)}


async def test_a_tree_of_a_thousand_runs_finishes(world_of: Worlds) -> None:
    world = families(world_of(), "tree-31-31")
    world.host()
    world.start_run("r_x", agent="tree-31-31")
    story = await world.finished("r_x")
    parents = lineage(story)
    assert len(parents) == 1 + 31 + 31 * 31
    assert not story.live
    entries = json.loads(results(story, "r_x")[0])["results"]
    assert [entry["index"] for entry in entries] == list(range(31))
    assert all(entry["ok"] for entry in entries)


async def test_an_agent_that_nobody_knows_fails_its_place_only(world_of: Worlds) -> None:
    world = families(world_of(), "tree-2")
    del world.definitions.known["leaf"]
    world.host()
    world.start_run("r_x", agent="tree-2")
    story = await over(world)
    entries = json.loads(results(story, "r_x")[0])["results"]
    assert [entry["error"] for entry in entries] == ["agent leaf does not exist"] * 2
    assert set(story.runs) == {"r_x"}


@pytest.mark.parametrize("seed", range(6))
async def test_a_crash_in_the_middle_of_a_fan_out_resumes_exactly_the_missing_children(
    world_of: Worlds, seed: int
) -> None:
    world = families(world_of(seed=seed, effect_delay=5), "tree-6-3")
    hosted = world.host()
    world.start_run("r_x", agent="tree-6-3")
    for crash in range(4):
        await world.until(lambda: world.has("r_x"))
        await world.ticks(40 + 37 * seed + 11 * crash)
        await hosted.kill()
        hosted = world.host(f"b{crash}")
    story = await world.finished("r_x")
    assert len(lineage(story)) == 1 + 6 + 18
    assert not story.live
    assert {ended(story, name)[0] for name in story.runs} == {"completed"}


@pytest.mark.parametrize("remembered", [20_000, 0])
async def test_children_whose_end_the_parent_never_heard_of_are_found_over(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    """By the next owner: in memory, or by the index when memory has forgotten them."""
    monkeypatch.setattr(fold, "ENDED_KEPT", remembered)
    monkeypatch.setattr(run_directory, "ENDED_KEPT", remembered)
    world = families(world_of(), "tree-2")
    hosted = world.host()
    await world.until(hosted.partition)
    owner = hosted.host.owners[0]
    drop_local_effects(owner, lambda effect: isinstance(effect, NotifyParent))
    world.start_run("r_x", agent="tree-2")
    await world.finished(*(child_run_id("r_x", 1, 0, number) for number in (0, 1)))
    await hosted.kill()
    world.host("b")
    story = await over(world)
    assert len(lineage(story)) == 3
    assert ended(story, "r_x")[0] == "completed"


async def test_a_cancel_of_a_parent_ends_its_whole_tree_and_names_it(world_of: Worlds) -> None:
    world = families(world_of(), "tree-2-2")
    world.host()
    held = asyncio.Event()
    leaves = 0

    async def hold(effect: Any) -> None:
        nonlocal leaves
        if len(effect.run_id) > 3 and effect.run_id.count("-") and _depth(world, effect.run_id) == 2:
            leaves += 1
            await held.wait()

    world.on_effect = hold
    world.start_run("r_x", agent="tree-2-2")
    await world.until(lambda: leaves == 4)
    world.cancel_run("r_x")
    story = await over(world)
    assert not story.live
    cancelled = story.runs["r_x"].events[-1]
    assert len(cancelled.cascaded) == 6
    assert {ended(story, name) for name in story.runs if name != "r_x"} == {("cancelled", "parent run cancelled")}


async def test_children_whose_parent_ended_with_its_owner_are_ended_by_the_next_one(world_of: Worlds) -> None:
    world = families(world_of(), "tree-2")
    hosted = world.host()
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if effect.run_id != "r_x":
            await held.wait()

    world.on_effect = hold
    world.start_run("r_x", agent="tree-2")
    await world.until(lambda: len(world._started) == 3)
    owner = hosted.host.owners[0]
    drop_local_effects(owner)
    world.cancel_run("r_x")
    await world.until(lambda: world._look() and "r_x" in world._ended)
    await hosted.kill()
    world.host("b")
    story = await over(world)
    assert not story.live


async def test_a_child_of_a_quarantined_parent_is_heard_after_the_release(world_of: Worlds) -> None:
    world = families(world_of(), "tree-1")
    world.host()
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if effect.run_id != "r_x":
            await held.wait()

    world.on_effect = hold
    world.start_run("r_x", agent="tree-1")
    await world.until(lambda: world._look() and len(world._started) == 2)
    offset = world.quarantine_run("r_x")
    await world.until(lambda: world.hosts[0].handled(offset))
    held.set()
    await world.finished(child_run_id("r_x", 1, 0, 0))
    world.release_run("r_x")
    story = await world.finished("r_x")
    assert ended(story, "r_x")[0] == "completed"


async def test_a_resident_child_is_opened_asked_and_closed(world_of: Worlds) -> None:
    world = families(world_of())
    world.host()
    world.start_run("r_x", agent="keeper")
    story = await over(world)
    guest = child_run_id("r_x", 1, 0, 0)
    assert [json.loads(text) for text in results(story, "r_x")] == [
        {"child_run_id": guest, "state": "awaiting_input", "output": "guest turn 1"},
        {"child_run_id": guest, "state": "awaiting_input", "output": "guest turn 2"},
        {"child_run_id": guest, "state": "closed", "output": "guest turn 2"},
    ]
    assert ended(story, guest) == ("completed", "closed")


@pytest.mark.parametrize("seed", range(4))
async def test_a_resident_hears_each_text_once_whoever_owns_it(world_of: Worlds, seed: int) -> None:
    world = families(world_of(seed=seed, effect_delay=4))
    hosted = world.host()
    world.start_run("r_x", agent="keeper")
    for crash in range(5):
        await world.ticks(15 + 7 * seed + 5 * crash)
        await hosted.kill()
        hosted = world.host(f"b{crash}")
    story = await world.finished("r_x", child_run_id("r_x", 1, 0, 0))
    assert [json.loads(text)["output"] for text in results(story, "r_x")] == [
        "guest turn 1",
        "guest turn 2",
        "guest turn 2",
    ]


async def test_residents_are_closed_with_their_parent(world_of: Worlds) -> None:
    world = families(world_of())
    world.host()
    guest = child_run_id("r_x", 1, 0, 0)
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if effect.run_id == "r_x" and effect.key[1] == 2:
            await held.wait()

    world.on_effect = hold
    world.start_run("r_x", agent="keeper")
    await world.until(lambda: world.has(guest) and world.begun["r_x", ("model", 2, 0, 1)])
    world.cancel_run("r_x")
    story = await over(world)
    assert ended(story, guest) == ("completed", "closed")


@pytest.mark.parametrize("op", ["send", "poll", "cancel", "close"])
async def test_a_run_of_another_partition_is_no_child_and_its_offsets_are_not_read_here(
    world_of: Worlds, op: str
) -> None:
    """The index knows every run; where one lies means something in its own partition only."""
    world = families(world_of(partitions=2))
    caller, stranger = "r_x", next(name for name in map("r_y{}".format, range(9)) if not together("r_x", name))
    place = partition_of(partition_key(caller).encode(), 2)
    world.host("a", owns=[place])
    world.host("b", owns=[1 - place])
    world.start_run(stranger, agent="pair")
    await world.finished(stranger)

    def asks(effect: Any, state: Any, at_ms: int) -> Any:
        actual = family_script(effect, state, at_ms)
        return (
            replace(actual, op=op, spawns=(), child_run_id=stranger)
            if isinstance(actual, ChildrenRequested)
            else actual
        )

    world.script = asks
    world.start_run(caller, agent="keeper")
    story = await world.finished(caller)
    assert set(results(story, caller)) == {f"{stranger} is no sub-agent of this run"}


def together(*runs: str) -> bool:
    """Whether they lie in one of two partitions."""
    return len({partition_of(partition_key(run).encode(), 2) for run in runs}) == 1


def _depth(world: World, run_id: str) -> int:
    story = world.story()
    first = story.runs[run_id].events[0]
    return first.parent.depth if first.parent is not None else 0


async def turn_stopped(world: World, hosted: Hosted, *, owner_dies: bool) -> None:
    """The turn of r_x is stopped; the owner dies before it does what the stop asks for, or lives."""
    if owner_dies:
        drop_local_effects(hosted.host.owners[0])
    envelope = CommandEnvelope(command_id="stop", tenant="t", issued_at_ms=world.now)
    world.put(CancelTurn(envelope=envelope, run_id="r_x", reason="enough"))
    await world.until(lambda: isinstance(world.story().runs["r_x"].state, Parked))
    if owner_dies:
        await hosted.kill()
        world.host("b")


@pytest.mark.parametrize("owner_dies", [False, True])
async def test_a_stopped_turn_ends_the_children_of_its_calls_and_the_parent_waits(
    world_of: Worlds, owner_dies: bool
) -> None:
    world = families(world_of(), "tree-2")
    hosted = world.host()
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if effect.run_id != "r_x":
            await held.wait()

    world.on_effect = hold
    world.start_run("r_x", agent="tree-2", interactive=True)
    await world.until(lambda: world._look() and len(world._started) == 3)
    await turn_stopped(world, hosted, owner_dies=owner_dies)
    await world.until(lambda: len(world.story().live) == 1)
    story = world.story()
    assert {ended(story, name)[0] for name in story.runs if name != "r_x"} == {"cancelled"}
    assert isinstance(story.runs["r_x"].state, Parked)
    assert results(story, "r_x") == ["cancelled by operator"]


@pytest.mark.parametrize("owner_dies", [False, True])
async def test_a_stopped_open_leaves_no_guest_that_nobody_knows_of(world_of: Worlds, owner_dies: bool) -> None:
    """Its id was to come with the result of the call. One that was opened before stays."""
    world = families(world_of())
    hosted = world.host()
    known, unknown = child_run_id("r_x", 1, 0, 0), child_run_id("r_x", 2, 0, 0)
    held = asyncio.Event()

    async def hold(effect: Any) -> None:
        if effect.run_id == unknown:
            await held.wait()

    def opens(effect: Any, state: Any, at_ms: int) -> Any:
        actual = family_script(effect, state, at_ms)
        if not isinstance(actual, ChildrenRequested):
            return actual
        return replace(
            actual, op="open", spawns=(Spawn(agent="guest", prompt="hello"),), child_run_id="", idle_ttl_s=60
        )

    world.on_effect, world.script = hold, opens
    world.start_run("r_x", agent="keeper", interactive=True)
    await world.until(lambda: world.has(unknown) and world.begun[unknown, ("model", 1, 0, 1)])
    await turn_stopped(world, hosted, owner_dies=owner_dies)
    story = await world.finished(unknown)
    assert ended(story, unknown) == ("cancelled", "closed")
    assert isinstance(story.runs[known].state, Parked)
    parent = story.runs["r_x"].state
    assert isinstance(parent, Parked)
    assert parent.facts.residents == (known,)
