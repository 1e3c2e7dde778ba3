"""Quarantine and release by an operator, and calls that end the process: one run is parked, others flow."""

from collections.abc import Callable
from typing import Any

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.run_events import (
    Event,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
    RunQuarantined,
    RunReleased,
    RunStarted,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.react import CallModel, CallTool
from loomlog.services.core.run.state import State
from loomlog.services.runtime.run.family import RunFamily
from tests.services.stream.given import replaced
from tests.services.stream.hosted import Hosted
from tests.services.stream.judge import dead_letters
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.test_host_poison import BuggyFamily, others_finish
from tests.services.stream.world import CODEC, World

Worlds = Callable[..., World]


def events_of(world: World, run_id: str = "r_bad") -> list[Any]:
    story = world.story().runs.get(run_id)
    return list(story.events) if story is not None else []


def count(world: World, kind: type[Any], run_id: str = "r_bad") -> int:
    return sum(isinstance(event, kind) for event in events_of(world, run_id))


async def stands_still(world: World, times: int = 1) -> RunQuarantined:
    """The run was quarantined so often; the event."""
    await world.until(lambda: count(world, RunQuarantined) == times)
    last = [event for event in events_of(world) if isinstance(event, RunQuarantined)][-1]
    assert isinstance(last, RunQuarantined)
    return last


async def under_way(world: World, hosted: Hosted) -> None:
    """The first model call of r_bad has begun, and does not return."""
    gate(world)
    world.start_run("r_bad")
    await world.until(lambda: hosted.work.effect_runner.running("r_bad"))


async def test_a_run_quarantined_by_an_operator_stands_still_over_a_take_over_while_others_flow(
    world_of: Worlds,
) -> None:
    world = world_of()
    first = world.host("a")
    await under_way(world, first)
    world.quarantine_run("r_bad", "it sends mails")
    parked = await stands_still(world)
    assert (parked.error, parked.by) == ("it sends mails", "op")
    await world.until(lambda: not first.work.effect_runner.running("r_bad"))
    world.on_effect = None
    await others_finish(world)
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    world.start_run("r_later")
    await world.finished("r_later")
    assert count(world, ModelCallRequested) == 1
    world.release_run("r_bad")
    story = await world.finished("r_bad")
    kinds = [type(event).__name__ for event in story.runs["r_bad"].events]
    at = kinds.index("RunReleased")
    assert kinds[at : at + 3] == ["RunReleased", "ModelCallFailed", "ModelCallRequested"], "as after a take-over"
    assert kinds[-1] == "RunCompleted"


async def test_a_text_to_a_quarantined_run_becomes_a_letter_that_reaches_it_after_the_release(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    await under_way(world, hosted)
    world.quarantine_run("r_bad")
    await stands_still(world)
    world.say("r_bad", "are you there?")
    await world.until(lambda: dead_letters(world.log, TOPICS.dead_letters))
    (letter,) = dead_letters(world.log, TOPICS.dead_letters)
    assert "is quarantined" in letter.error
    world.release_run("r_bad")
    await world.until(lambda: hosted.work.effect_runner.running("r_bad"))
    world.log.put(TOPICS.commands, 0, [ProducerRecord(key=letter.key, value=letter.value)])
    await world.until(lambda: any(type(event).__name__ == "InputReceived" for event in events_of(world)))


async def test_a_quarantined_run_can_be_cancelled(world_of: Worlds) -> None:
    world = world_of()
    await under_way(world, world.host())
    world.quarantine_run("r_bad")
    await stands_still(world)
    world.cancel_run("r_bad")
    story = await world.finished("r_bad")
    assert isinstance(story.runs["r_bad"].events[-1], RunCancelled)


async def test_orders_to_runs_that_are_unknown_over_or_of_somebody_else_have_no_effect(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_theirs", tenant="other")
    world.start_run("r_over")
    before = len((await world.finished("r_theirs", "r_over")).runs["r_over"].events)
    offsets = [order(run_id) for run_id in ("r_none", "r_over") for order in (world.quarantine_run, world.release_run)]
    gate(world)
    world.start_run("r_of_others", tenant="other")
    await world.until(lambda: hosted.work.effect_runner.running("r_of_others"))
    offsets.append(world.quarantine_run("r_of_others"))
    await world.until(lambda: all(hosted.handled(offset) for offset in offsets))
    assert len(events_of(world, "r_over")) == before
    assert count(world, RunQuarantined, "r_of_others") == 0
    assert dead_letters(world.log, TOPICS.dead_letters) == []


async def test_a_release_by_the_code_that_has_the_bug_ends_in_quarantine_again_once_for_each_release(
    world_of: Worlds,
) -> None:
    world = world_of()
    first = world.host("a", family=BuggyFamily("decide"))
    world.start_run("r_bad")
    await stands_still(world)
    for times in (2, 3):
        world.release_run("r_bad", f"release-{times}")
        parked = await stands_still(world, times)
        assert "a bug in decide" in parked.error
        assert count(world, RunReleased) == times - 1
    await others_finish(world)
    await first.kill()
    world.host("b")  # the bug is mended
    await world.ticks(50)
    assert count(world, RunQuarantined) == 3
    world.release_run("r_bad", "release-mended")
    story = await world.finished("r_bad")
    assert isinstance(story.runs["r_bad"].events[-1], RunCompleted)


class CannotGoOn(RunFamily):
    """The rules with a bug that shows in everything but a release's refusal: the recovery."""

    def decide(self, state: State, order: Any) -> list[Event]:
        events = super().decide(state, order)
        if any(isinstance(event, RunReleased) for event in events):
            raise ZeroDivisionError("a bug in the release")
        return events


async def test_a_release_that_breaks_a_rule_changes_nothing_and_tells_its_caller_why(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host(family=CannotGoOn())
    await under_way(world, hosted)
    world.quarantine_run("r_bad")
    await stands_still(world)
    world.release_run("r_bad", "the release")
    parked = await stands_still(world, 2)
    assert "a bug in the release" in parked.error
    record = CODEC.decode(world.log.records[TOPICS.events, 0][-1].value or b"")
    assert record.envelope is not None
    assert record.envelope.cause_id == "the release"
    world.on_effect = None
    await others_finish(world)


async def test_what_cannot_be_folded_is_told_at_a_release_and_goes_on_with_the_mended_code(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    await under_way(world, first)
    await first.kill()
    world.on_effect = None
    buggy = world.host("b", family=BuggyFamily("evolve", turn=1))
    await others_finish(world)
    assert count(world, RunQuarantined) == 0, "the next owner may have mended code: nothing is written by itself"
    for times in (1, 2):
        world.release_run("r_bad", f"release-{times}")
        parked = await stands_still(world, times)
        assert "a bug in evolve" in parked.error
    world.quarantine_run("r_bad")
    await world.until(lambda: any(type(event).__name__ == "CommandRefused" for event in events_of(world)))
    assert not await buggy.host.checkpoints.make(buggy.host.owners[0]), "its events must stay in the tail"
    world.start_run("r_later")
    await world.finished("r_later")
    await buggy.kill()
    world.host("c")
    await world.ticks(50)
    assert count(world, RunReleased) == 0
    world.release_run("r_bad", "release-mended")
    story = await world.finished("r_bad")
    assert isinstance(story.runs["r_bad"].events[-1], RunCompleted)


async def test_a_damaged_record_in_the_log_is_found_by_the_release_however_well_the_memory_is(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await under_way(world, hosted)
    world.quarantine_run("r_bad")
    await stands_still(world)
    records = world.log.records[TOPICS.events, 0]
    place = next(at for at, record in enumerate(records) if record.key == b"bad")
    whole = records[place].value or b""
    replaced(world.log, place, whole[:-1])
    offset = world.release_run("r_bad")
    await world.until(lambda: hosted.handled(offset))
    partition = hosted.partition()
    assert partition is not None
    assert "Undecodable" in partition.aggregates["r_bad"].quarantined
    replaced(world.log, place, whole)
    world.on_effect = None
    await others_finish(world)
    world.release_run("r_bad", "release-mended")
    story = await world.finished("r_bad")
    assert isinstance(story.runs["r_bad"].events[-1], RunCompleted)


async def test_a_run_of_which_not_even_the_first_event_can_be_read_leaves_a_letter_for_its_release(
    world_of: Worlds,
) -> None:
    world = world_of()
    first = world.host("a")
    await under_way(world, first)
    await first.kill()
    second = world.host("b", family=NothingBegins())
    world.on_effect = None
    await world.until(lambda: second.host.metrics.quarantined == 1)
    world.release_run("r_bad")
    await world.until(lambda: dead_letters(world.log, TOPICS.dead_letters))
    assert "cannot be folded from its first event on" in dead_letters(world.log, TOPICS.dead_letters)[-1].error
    await others_finish(world)


class NothingBegins(RunFamily):
    """r_bad cannot begin in the eyes of this code."""

    def evolve(self, state: State, event: Event, at_ms: int) -> State:
        if isinstance(event, RunStarted) and getattr(state, "run_id", "") == "r_bad":
            raise ZeroDivisionError("a bug at the start")
        return super().evolve(state, event, at_ms)


# --- calls that end their process ------------------------------------------------------------------------------------


async def test_a_tool_that_ends_its_process_is_begun_a_bounded_number_of_times(world_of: Worlds) -> None:
    world = world_of(turns=1_000)
    helper = world.definitions.known["helper"]
    world.definitions.known["helper"] = replace(helper, unbounded_iterations=True)
    dying: list[str] = []

    async def fatal(effect: Any) -> None:
        if effect.run_id == "r_bad" and isinstance(effect, CallTool):
            dying.append("now")
            await never.wait()
        elif effect.run_id != "r_bad" and isinstance(effect, CallModel) and not done:
            await never.wait()

    never, done = gate(world), False
    world.on_effect = fatal
    hosted = world.host("p0")
    world.start_run("r_bad")
    world.start_run("r_innocent")
    deaths = 0
    while not count(world, RunQuarantined):
        await world.until(lambda: dying or count(world, RunQuarantined))
        if not dying:
            break
        deaths += 1
        assert deaths <= limits.LOSSES_MAX + 1, "a restart loop"
        await hosted.kill()
        dying.clear()
        world.now += 1_000
        hosted = world.host(f"p{deaths}")
    assert deaths == limits.LOSSES_MAX + 1
    assert "processes were lost" in (await stands_still(world)).error
    done, world.turns = True, 1
    never.set()
    story = await world.finished("r_innocent")
    assert isinstance(story.runs["r_innocent"].events[-1], RunCompleted)
    assert hosted.host.metrics.quarantined == 1
