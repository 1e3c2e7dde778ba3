"""Runs that rest, in the life of hosts: what they do is what they would have done with their state in memory."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.codec import peek
from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.run_commands import (
    CancelTurn,
    CloseResident,
    CompactRun,
    ForkRun,
    PauseRun,
    ResolveInterruption,
    ResumeRun,
)
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InterruptionOpened,
    RunParked,
    RunQuarantined,
    RunRefused,
)
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, InterruptionTerms, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ModelAnswered
from loomlog.services.core.run.interrupts.interruptions import TOOL_NAME, interrupt_id_for, parse_request
from loomlog.services.core.run.react import CallModel
from loomlog.services.core.run.state import Parked
from loomlog.services.families.pause.state import PauseTable, evolve
from loomlog.services.stream.ownership.inbox import WidePausesChanged
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.partition.resting import is_resting
from tests.services.stream.given import compact
from tests.services.stream.hosted import Hosted
from tests.services.stream.outside import TOPICS
from tests.services.stream.script import answer
from tests.services.stream.world import CODEC, World

Worlds = Callable[..., World]
RUN = "r_tok"
QUESTION = interrupt_id_for(RUN, 1, 0)
ASKER = AgentDefinition(
    name="asker", provider="acme", model="large", tools=(TOOL_NAME,), interruption=InterruptionTerms(enabled=True)
)


def asks(effect: Any, state: Any, at_ms: int) -> Any:
    """The asker asks a person in its first turn."""
    if not isinstance(effect, CallModel) or state.facts.definition.name != "asker" or effect.turn > 1:
        return None
    call = ToolCall(id="c0", name=TOOL_NAME, input=json.dumps({"op": "ask", "question": "Shall I?"}))
    reply = answer(effect, effect.turn, at_ms)
    assert isinstance(reply, ModelAnswered)
    return replace(
        reply, tool_calls=(call,), effect_classes=("pure",), interruption_requests=(parse_request(0, call.input),)
    )


def resting(hosted: Hosted) -> set[str]:
    partition = hosted.partition()
    return set() if partition is None else {one.id for one in partition.aggregates.values() if is_resting(one)}


def held(hosted: Hosted, name: str = RUN) -> Aggregate:
    partition = hosted.partition()
    assert partition is not None
    return partition.aggregates[name]


async def let_rest(hosted: Hosted) -> None:
    """Make a partition snapshot, and look twice for what may rest."""
    owner = hosted.host.owners[0]
    assert await hosted.host.checkpoints.make(owner)
    owner.let_idle_rest()
    owner.let_idle_rest()


def kinds(world: World, name: str = RUN) -> list[str]:
    return [type(event).__name__ for event in world.story().runs[name].events]


async def waits_in(world: World, name: str = RUN, agent: str = "helper") -> Hosted:
    """A host with a run that waits for a person."""
    world.script = asks
    world.definitions.known["asker"] = ASKER
    hosted = world.host("a")
    world.start_run(name, agent=agent, interactive=True)
    await world.until(
        lambda: (
            world.has(name)
            and any(isinstance(e, RunParked | InterruptionOpened) for e in world.story().runs[name].events)
        )
    )
    await world.until(hosted.settled)
    return hosted


async def test_a_parked_run_rests_once_it_has_its_snapshot_and_nothing_happened_since(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    owner = hosted.host.owners[0]
    owner.let_idle_rest()
    owner.let_idle_rest()
    assert resting(hosted) == set(), "its state is nowhere else yet"
    assert await hosted.host.checkpoints.make(owner)
    assert owner.let_idle_rest() == 0
    assert owner.let_idle_rest() == 1
    assert resting(hosted) == {RUN}
    assert owner.let_idle_rest() == 0


async def test_a_run_that_was_loaded_stays_for_a_while(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    await let_rest(hosted)
    envelope = CommandEnvelope(command_id="r", tenant="t", issued_at_ms=world.now)
    offset = world.put(CloseResident(envelope=envelope, run_id=RUN, reason="not for this one"))
    await world.until(lambda: hosted.handled(offset))
    await world.until(hosted.settled)
    assert isinstance(held(hosted).state, Parked)
    owner = hosted.host.owners[0]
    assert (await hosted.host.checkpoints.make(owner), owner.let_idle_rest(), owner.let_idle_rest()) == (True, 0, 1)


async def test_a_run_at_work_does_not_rest(world_of: Worlds) -> None:
    world = world_of()
    go_on = asyncio.Event()

    async def hold(effect: Any) -> None:
        await go_on.wait()

    world.on_effect = hold
    hosted = world.host("a")
    world.start_run(RUN)
    await world.until(lambda: world.begun)
    await world.until(hosted.settled)
    await let_rest(hosted)
    assert resting(hosted) == set()
    go_on.set()
    await world.finished(RUN)


# --- what wakes them -------------------------------------------------------------------------------------------------


def command(kind: type[Any], **fields: Any) -> Callable[[World], int]:
    def put(world: World) -> int:
        envelope = CommandEnvelope(command_id="c", tenant="t", subject="op", issued_at_ms=world.now)
        return world.put(kind(**{"envelope": envelope, "run_id": RUN, **fields}))

    return put


COMMANDS: dict[str, Callable[[World], int]] = {
    "input": lambda world: world.say(RUN, "go on"),
    "cancel": lambda world: world.cancel_run(RUN),
    "another tenant": lambda world: world.cancel_run(RUN, tenant="other"),
    "pause": command(PauseRun, reason="wait"),
    "resume": command(ResumeRun),
    "cancel turn": command(CancelTurn, reason="stop"),
    "close": command(CloseResident, reason="enough"),
    "compact": command(CompactRun),
    "quarantine": lambda world: world.quarantine_run(RUN),
    "release": lambda world: world.release_run(RUN),
    "start again": lambda world: world.put(world.start_command(RUN, interactive=True)),
    "another start": lambda world: world.put(world.start_command(RUN, prompt="other", interactive=True)),
    "its session": lambda world: world.put(world.start_command("r_tok-2", session_id="s_tok")),
    "its handle": lambda world: world.put(world.start_command("r_tok-2", agent_id="a_tok")),
    "fork": command(ForkRun, run_id="r_tok-2", origin_run_id=RUN, at_seq=3),
}


async def story_after(world: World, put: Callable[[World], int], *, rests: bool) -> list[Any]:
    hosted = await waits_in(world)
    if rests:
        await let_rest(hosted)
        assert resting(hosted) == {RUN}
    offset = put(world)
    await world.until(lambda: hosted.handled(offset), "the command")
    # What it leads to: runs here need some dozens of turns of the loop.
    await world.ticks(200)
    await world.until(hosted.settled)
    return [(name, run.events) for name, run in world.story().runs.items()]


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_command_does_to_a_run_that_rests_what_it_does_to_any(world_of: Worlds, name: str) -> None:
    put = COMMANDS[name]
    assert await story_after(world_of(turns=1), put, rests=True) == await story_after(
        world_of(turns=1), put, rests=False
    )


async def test_a_second_run_of_its_session_is_refused(world_of: Worlds) -> None:
    world = world_of(turns=1)
    await story_after(world, COMMANDS["its session"], rests=True)
    assert isinstance(world.story().runs["r_tok-2"].events[0], RunRefused)


async def test_the_answer_of_a_person_goes_to_a_run_that_rests(world_of: Worlds) -> None:
    world = world_of(turns=2)
    hosted = await waits_in(world, agent="asker")
    await let_rest(hosted)
    assert resting(hosted) == {RUN}
    envelope = CommandEnvelope(command_id="yes", tenant="t", subject="ada", issued_at_ms=world.now)
    world.put(ResolveInterruption(envelope=envelope, run_id=RUN, interrupt_id=QUESTION, answer="yes"))
    await world.until(lambda: "RunParked" in kinds(world))
    assert "InterruptionClosed" in kinds(world)


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_question_expires_for_a_run_that_rests(world_of: Worlds, taken_over: bool) -> None:
    world = world_of(turns=2)
    hosted = await waits_in(world, agent="asker")
    await let_rest(hosted)
    if taken_over:
        await hosted.kill()
        hosted = world.host("b")
        await world.until(hosted.partition)
    assert resting(hosted) == {RUN}
    assert held(hosted).timer_at_ms > world.now
    world.now = held(hosted).timer_at_ms
    hosted.host.fire_due_timers()
    await world.until(lambda: "RunParked" in kinds(world))
    assert "InterruptionClosed" in kinds(world)


def paused(scope: str = "all", tenant: str = "", agent: str = "") -> PauseTable:
    return evolve(PauseTable(), PauseSet(scope=scope, tenant=tenant, agent=agent, reason="deploy", by="op"), 1)


async def change(world: World, hosted: Hosted, table: PauseTable) -> None:
    world.pauses = table
    hosted.host.owners[0].deliver(WidePausesChanged())


@pytest.mark.parametrize("taken_over", [False, True])
async def test_wide_pauses_are_in_the_log_of_a_run_that_rests_and_lifted_again(
    world_of: Worlds, taken_over: bool
) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    await let_rest(hosted)
    if taken_over:
        await hosted.kill()
        world.pauses = paused("agent", agent="helper")
        hosted = world.host("b")
    else:
        await change(world, hosted, paused("agent", agent="helper"))
    await world.until(lambda: kinds(world)[-1] == "RunPauseRequested")
    await world.until(hosted.settled)
    await let_rest(hosted)
    assert resting(hosted) == {RUN}, "a parked run that is paused waits like any other"
    await change(world, hosted, PauseTable())
    await world.until(lambda: kinds(world)[-1] == "RunResumed")


async def test_a_pause_that_does_not_concern_a_run_does_not_load_it(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    await let_rest(hosted)
    await change(world, hosted, paused("agent", agent="other"))
    await change(world, hosted, paused("tenant", tenant="other"))
    await world.ticks(50)
    assert resting(hosted) == {RUN}
    assert "RunPauseRequested" not in kinds(world)


# --- take-overs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("had_input", [False, True])
async def test_the_next_owner_finds_them_resting_and_goes_on(world_of: Worlds, is_warm: bool, had_input: bool) -> None:
    world = world_of(turns=1)
    first = await waits_in(world)
    world.start_run("r_other", interactive=True)
    await world.until(lambda: world.has("r_other") and kinds(world, "r_other")[-1] == "RunParked")
    await world.until(first.settled)
    await let_rest(first)
    assert resting(first) == {RUN, "r_other"}
    second = world.host("b", owns=[], stands_by=True) if is_warm else None
    if second is not None:
        world.share_out(a=[0], b=[])
        await world.until(lambda: second.host.warm_partitions == 1)
    if had_input:
        world.say(RUN, "once")
        await world.until(lambda: kinds(world).count("RunParked") == 2)
    await first.kill()
    if second is None:
        second = world.host("b")
    else:
        world.share_out(b=[0])
    await world.until(second.partition)
    assert resting(second) == ({"r_other"} if had_input else {RUN, "r_other"})
    for name in (RUN, "r_other"):
        before = kinds(world, name).count("RunParked")
        world.say(name, f"hello {name}")
        await world.until(lambda: kinds(world, name).count("RunParked") == before + 1)  # noqa: B023
    assert second.host.metrics.quarantined == 0


async def test_a_standby_loads_what_no_longer_rests_before_compaction_removes_it(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(turns=1)
    first = await waits_in(world)
    await let_rest(first)
    second = world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    await world.until(lambda: second.host.warm_partitions == 1)
    for number in range(3):
        world.say(RUN, f"text {number}")
        await world.until(lambda: kinds(world).count("RunParked") == number + 2)  # noqa: B023
        await world.until(first.settled)
        await world.ticks(50)
        await let_rest(first)
        compact(world.log, TOPICS.snapshots)
    await first.kill()
    with caplog.at_level(logging.WARNING):
        world.share_out(b=[0])
        await world.until(second.partition)
    assert "is folded again" not in caplog.text
    assert isinstance(held(second).state, Parked)
    assert await second.host.checkpoints.make(second.host.owners[0])


# --- snapshots that are lost -----------------------------------------------------------------------------------------


def delete(world: World) -> None:
    records = world.log.records[TOPICS.snapshots, 0]
    records[:] = [replace(record, key=b"gone", value=None) for record in records]


def edit(world: World) -> None:
    records = world.log.records[TOPICS.snapshots, 0]
    records[:] = [replace(r, value=(r.value or b"").replace(b"turn 1", b"turn 7")) for r in records]


@pytest.mark.parametrize("damage", [delete, edit])
async def test_a_run_whose_snapshot_cannot_be_used_is_folded_again_from_the_log(
    world_of: Worlds, damage: Callable[[World], None], caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    state = held(hosted).state
    await let_rest(hosted)
    damage(world)
    with caplog.at_level(logging.WARNING):
        offset = world.put(world.start_command(RUN, interactive=True))  # changes nothing
        await world.until(lambda: hosted.handled(offset))
    assert f"{RUN} is folded again from the log" in caplog.text
    assert held(hosted).state == state
    await let_rest(hosted)
    assert resting(hosted) == {RUN}, "its snapshot was written again"
    caplog.clear()
    world.say(RUN, "go on")
    await world.until(lambda: kinds(world).count("RunParked") == 2)
    assert "folded again" not in caplog.text


async def test_a_run_that_is_neither_in_its_snapshot_nor_in_the_log_is_quarantined_alone(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    await let_rest(hosted)
    delete(world)
    events = world.log.records[TOPICS.events, 0]
    third = next(r for r in events if r.value is not None and peek(r.value).aggregate == RUN and peek(r.value).seq == 3)
    events[third.offset] = replace(third, value=b"garbage")
    offset = world.say(RUN, "go on")
    world.start_run("r_other")
    await world.until(lambda: hosted.handled(offset))
    assert "BrokenHistory" in held(hosted).quarantined
    assert hosted.host.metrics.quarantined == 1
    assert held(hosted).pending_events
    await world.until(lambda: kinds_of_raw(world, "r_other")[-1:] == ["RunCompleted"])
    assert not await hosted.host.checkpoints.make(hosted.host.owners[0]), "its events must stay in the tail"


def kinds_of_raw(world: World, name: str) -> list[str]:
    """As `kinds`, of a log in which another run is damaged."""
    found = []
    for record in world.log.records[TOPICS.events, 0]:
        if record.value and record.value != b"garbage" and peek(record.value).aggregate == name:
            found.append(type(CODEC.decode(record.value).record).__name__)
    return found


async def test_while_a_state_cannot_be_read_its_commands_wait_and_others_go_on(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(turns=1)
    hosted = await waits_in(world)
    await let_rest(hosted)
    read: Callable[..., Awaitable[Any]] = hosted.work.snapshots.read_state
    is_away = True

    async def away(*place: Any) -> Any:
        if is_away:
            raise Transient("the broker is away", kind="unavailable")
        return await read(*place)

    monkeypatch.setattr(hosted.work.snapshots, "read_state", away)
    first, second = world.say(RUN, "one"), world.say(RUN, "two")
    world.start_run("r_other")
    await world.finished("r_other")
    assert not hosted.handled(first)
    assert not hosted.handled(second)
    is_away = False
    await world.until(lambda: hosted.handled(second))
    texts = [event.text for event in world.story().runs[RUN].events if type(event).__name__ == "InputReceived"]
    assert texts == ["one", "two"]


# --- deaths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ticks", range(0, 60, 3))
async def test_a_death_at_any_moment_loses_no_input_of_runs_that_rest(world_of: Worlds, ticks: int) -> None:
    world = world_of(turns=1, seed=ticks, effect_delay=2)
    first = world.host("a")
    names = [f"r_{number}" for number in range(4)]
    for name in names:
        world.start_run(name, interactive=True)
    await world.until(lambda: all(world.has(name) and kinds(world, name)[-1] == "RunParked" for name in names))
    await world.until(first.settled)
    await let_rest(first)
    for name in names:
        world.say(name, f"to {name}")
    making = first.task.get_loop().create_task(first.host.checkpoints.make(first.host.owners[0]))
    await world.ticks(ticks)
    first.host.owners[0].let_idle_rest()
    await first.kill()
    making.cancel()
    if ticks % 2:
        compact(world.log, TOPICS.snapshots)
    second = world.host("b")
    await world.until(second.partition)
    await world.until(lambda: all(kinds(world, name).count("RunParked") == 2 for name in names))
    await world.until(second.settled)
    await let_rest(second)
    assert resting(second) == set(names)
    for name in names:
        assert kinds(world, name).count("InputReceived") == 1
        world.cancel_run(name)
    await world.finished(*names)
    assert not any(
        isinstance(e, RunQuarantined | CommandRefused) for run in world.story().runs.values() for e in run.events
    )
