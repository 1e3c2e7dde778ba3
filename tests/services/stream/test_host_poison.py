"""A poison record or a bug stops one run or one command, never a partition; what is broken beyond that is loud."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import PostInput, StartRun
from loomlog.schemas.generated.run_events import Event, RunCompleted, RunQuarantined
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.run.commands import RunCommand
from loomlog.services.core.run.state import State
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.family import RunEffects, RunFamily
from loomlog.services.stream.ownership import watchdog
from tests.services.stream.given import replaced
from tests.services.stream.judge import dead_letters
from tests.services.stream.membership import FixedMembership
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]
GOOD = tuple(f"r_good{number}" for number in range(3))


def raw(world: World, value: bytes | None, key: bytes | None = b"k", headers: Sequence[tuple[str, Any]] = ()) -> int:
    """Any bytes in the commands topic; their offset."""
    return world.log.put(TOPICS.commands, 0, [ProducerRecord(key=key, value=value, headers=headers)])


async def others_finish(world: World) -> None:
    for name in GOOD:
        world.start_run(name)
    story = await world.finished(*GOOD)
    assert all(isinstance(story.runs[name].events[-1], RunCompleted) for name in GOOD)


def start(run_id: str) -> bytes:
    """The bytes of a StartRun."""
    return local_codec().encode(StartRun(envelope=CommandEnvelope(command_id="c"), agent="helper", run_id=run_id))


DELTA = ModelDelta(term=1, run_id="r_x", turn=1, attempt=1, start=0, text="x")
"""A record of ours that is no command."""


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"garbage", "undecodable"),
        (b"", "undecodable"),
        (None, "undecodable"),
        (b"\0" + (9_999).to_bytes(4, "big") + b"x", "unknown_schema"),
        (start("r_k")[:-3], "undecodable"),
        (start("r_elsewhere"), "refused"),
        (start("r_k b"), "refused"),
        (local_codec().encode(DELTA), "refused"),
    ],
    ids=["garbage", "empty", "tombstone", "unknown schema", "cut short", "wrong key", "no id", "no command"],
)
async def test_a_poison_command_becomes_a_dead_letter_and_the_rest_flows(
    world_of: Worlds, value: bytes | None, kind: str
) -> None:
    world = world_of()
    hosted = world.host()
    offset = raw(world, value, headers=[("h", b"1"), ("empty", None)])
    await others_finish(world)
    await world.until(lambda: hosted.handled(offset))
    letters = dead_letters(world.log, TOPICS.dead_letters)
    assert len(letters) == 1
    letter = letters[0]
    assert (letter.topic, letter.partition, letter.offset, letter.kind) == (TOPICS.commands, 0, offset, kind)
    assert (letter.key, letter.value) == (b"k", value)
    assert [(header.key, header.value) for header in letter.headers] == [("h", b"1"), ("empty", b"")]
    assert letter.error
    assert letter.service == "test"


async def test_a_command_counts_as_handled_only_when_its_letter_is_in_the_log(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    offset = raw(world, b"garbage")
    await world.ticks(20)
    assert not hosted.handled(offset)
    await hosted.kill()  # before the letter left: the next owner reads the command again
    other = world.host("b")
    await world.until(lambda: other.handled(offset))
    assert [letter.offset for letter in dead_letters(world.log, TOPICS.dead_letters)] == [offset]


async def test_a_command_that_is_too_large_is_refused_and_its_run_goes_on(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    envelope = CommandEnvelope(command_id="big", tenant="t")
    offset = world.put(PostInput(envelope=envelope, run_id="r_x", text="x" * 900_000))
    await world.until(lambda: hosted.handled(offset))
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    letter = dead_letters(world.log, TOPICS.dead_letters)[0]
    assert (letter.kind, letter.value) == ("refused", None)
    assert "DecisionTooLarge" in letter.error


# --- bugs ------------------------------------------------------------------------------------------------------------


class BuggyEffects(RunEffects):
    """Effects with the bug of their family."""

    def __init__(self, family: "BuggyFamily") -> None:
        self._family = family

    def react(self, state: State, event: Event) -> tuple[Any, ...]:
        family = self._family
        if family.where == "react" and getattr(event, "turn", 0) == family.turn and family._is_bad(state):
            raise ZeroDivisionError("a bug in react")
        return super().react(state, event)


class BuggyFamily(RunFamily):
    """The rules with a bug that shows in one run, in one of the three functions."""

    def __init__(self, where: str, *, turn: int = 2) -> None:
        self.where = where
        self.turn = turn
        self.effects = BuggyEffects(self)

    def decide(self, state: State, order: RunCommand) -> list[Event]:
        if self.where == "decide" and getattr(order, "turn", 0) == self.turn and self._is_bad(state):
            raise ZeroDivisionError("a bug in decide")
        return super().decide(state, order)

    def evolve(self, state: State, event: Event, at_ms: int) -> State:
        if self.where == "evolve" and getattr(event, "turn", 0) == self.turn and self._is_bad(state):
            raise ZeroDivisionError("a bug in evolve")
        return super().evolve(state, event, at_ms)

    def _is_bad(self, state: State) -> bool:
        facts = getattr(state, "facts", None)
        return facts is not None and facts.run_id == "r_bad"


@pytest.mark.parametrize("where", ["decide", "evolve", "react"])
async def test_a_bug_that_shows_in_one_run_quarantines_that_run_and_no_other(world_of: Worlds, where: str) -> None:
    world = world_of()
    hosted = world.host(family=BuggyFamily(where))
    world.start_run("r_bad")
    await others_finish(world)
    await world.until(lambda: any(isinstance(e, RunQuarantined) for e in world.story().runs["r_bad"].events))
    quarantine = world.story().runs["r_bad"].events[-1]
    assert "ZeroDivisionError" in quarantine.error
    assert hosted.host.metrics.quarantined == 1
    # What is said to it from now on is parked, with the reason.
    offset = world.say("r_bad", "are you there?")
    await world.until(lambda: hosted.handled(offset))
    assert "is quarantined" in dead_letters(world.log, TOPICS.dead_letters)[-1].error


async def test_a_quarantined_run_stays_so_with_the_next_owner(world_of: Worlds) -> None:
    world = world_of()
    first = world.host("a", family=BuggyFamily("decide"))
    world.start_run("r_bad")
    await world.until(lambda: first.host.metrics.quarantined == 1)
    await world.until(lambda: isinstance(world.story().runs["r_bad"].events[-1], RunQuarantined))
    await first.kill()
    begun = world.begun.copy()
    second = world.host("b")
    await others_finish(world)
    partition = second.partition()
    assert partition is not None
    assert partition.aggregates["r_bad"].quarantined
    assert {key: count for key, count in world.begun.items() if key[0] == "r_bad"} == {
        key: count for key, count in begun.items() if key[0] == "r_bad"
    }


async def test_a_bug_while_starting_a_run_parks_its_command_alone(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host(family=BuggyFamily("react", turn=1))
    world.start_run("r_bad")
    await others_finish(world)
    await world.until(lambda: hosted.handled(0))
    assert "r_bad" not in world.story().runs
    assert [letter.kind for letter in dead_letters(world.log, TOPICS.dead_letters)] == ["fold_bug"]


async def test_a_bug_that_only_the_new_owner_has_quarantines_the_run_until_it_is_fixed(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    gate(world)
    world.start_run("r_bad")
    await world.until(lambda: first.work.effect_runner.running_count == 1)
    await first.kill()
    world.on_effect = None
    buggy = world.host("b", family=BuggyFamily("evolve", turn=1))
    await others_finish(world)
    assert buggy.host.metrics.quarantined == 1
    await buggy.kill()
    world.host("c")  # the bug is fixed; nothing about it was written into the log
    story = await world.finished("r_bad")
    assert isinstance(story.runs["r_bad"].events[-1], RunCompleted)


async def test_definitions_that_crash_refuse_the_command_and_not_the_process(world_of: Worlds) -> None:
    world = world_of()

    class Crashing(DefinitionResolver):
        def resolve(self, agent: str, **_: object) -> Any:
            if agent == "bad":
                raise KeyError(agent)
            return world.definitions.known["helper"]

    definitions = world.definitions
    world.definitions = Crashing()  # type: ignore[assignment]  # the fault is asked for
    world.definitions.known = definitions.known
    hosted = world.host()
    world.start_run("r_bad", agent="bad")
    await others_finish(world)
    await world.until(lambda: hosted.handled(0))
    assert [letter.kind for letter in dead_letters(world.log, TOPICS.dead_letters)] == ["refused"]


async def test_damaged_records_of_the_log_are_parked_and_only_their_run_suffers(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    gate(world)
    for name in ("r_bad", "r_fine"):
        world.start_run(name)
    await world.until(lambda: first.work.effect_runner.running_count == 2)
    await first.kill()
    world.on_effect = None
    records = world.log.records[TOPICS.events, 0]
    place = next(at for at, record in enumerate(records) if record.key == b"bad")
    damaged = bytearray(records[place].value or b"")
    damaged[-1] ^= 0xFF
    replaced(world.log, place, bytes(damaged))
    world.log.put(TOPICS.events, 0, [ProducerRecord(key=None, value=b"garbage")])
    second = world.host("b")
    await world.until(lambda: second.host.metrics.quarantined == 1)
    partition = second.partition()
    assert partition is not None
    assert partition.aggregates["r_bad"].quarantined
    await world.until(lambda: "r_fine" not in partition.aggregates)
    await world.until(lambda: dead_letters(world.log, TOPICS.dead_letters))
    assert [letter.kind for letter in dead_letters(world.log, TOPICS.dead_letters)] == ["undecodable"]


# --- no silent death -------------------------------------------------------------------------------------------------


async def ends(task: asyncio.Task[None]) -> list[BaseException]:
    """The errors with which a host ended, soon."""
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    error = task.exception()
    assert isinstance(error, ExceptionGroup)
    return list(error.exceptions)


async def test_an_error_of_the_appender_that_nobody_expected_ends_the_host(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.fails = ValueError("records do not fit one batch")
    world.start_run("r_x")
    assert [type(error) for error in await ends(hosted.task)] == [ValueError]


async def test_an_error_while_claiming_ends_the_host(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    hosted.wire.fails = ZeroDivisionError("a bug")
    assert [type(error) for error in await ends(hosted.task)] == [ZeroDivisionError]


async def test_an_error_of_the_group_ends_the_host(world_of: Worlds) -> None:
    world = world_of()

    async def stay(self: FixedMembership) -> None:
        raise Transient("the group is gone", kind="unavailable")

    original, FixedMembership.stay = FixedMembership.stay, stay  # type: ignore[method-assign]  # the fault is asked for
    try:
        hosted = world.host()
        assert [type(error) for error in await ends(hosted.task)] == [Transient]
    finally:
        FixedMembership.stay = original  # type: ignore[method-assign]  # as it was


async def test_an_error_while_reading_commands_ends_the_host(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    records: list[LogRecord] = world.log.records[TOPICS.commands, 0]  # type: ignore[assignment]  # as a tail sees them
    records.append("not a record")  # type: ignore[arg-type]  # the fault is asked for
    world.log.wake()
    assert [type(error) for error in await ends(hosted.task)] == [AttributeError]


async def test_an_error_while_writing_dead_letters_ends_the_host(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.fails = ZeroDivisionError("a bug")
    raw(world, b"garbage")
    assert [type(error) for error in await ends(hosted.task)] == [ZeroDivisionError]


@pytest.mark.parametrize("broker_answers", [True, False])
async def test_a_batch_without_progress_ends_the_host_only_when_the_broker_answers(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch, broker_answers: bool
) -> None:
    monkeypatch.setattr(watchdog, "STALL_S", 0.0)
    monkeypatch.setattr(watchdog, "SUSPICIOUS_S", 0.0)
    monkeypatch.setattr(watchdog, "WATCH_EVERY_S", 0.0)
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)

    async def away(self: Any) -> Any:
        raise Transient("no broker", kind="unavailable")

    if not broker_answers:
        monkeypatch.setattr("loomlog.connectors.kafka.memory_log.MemoryTail.end_offsets", away)
    hosted.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    if broker_answers:
        assert [type(error) for error in await ends(hosted.task)] == [RuntimeError]
    else:
        await world.ticks(50)
        assert not hosted.task.done()


async def test_time_in_which_the_broker_was_away_is_no_stall(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(watchdog, "WATCH_EVERY_S", 0.0)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    is_away = True

    async def end_offsets(self: Any) -> Any:
        if is_away:
            raise Transient("no broker", kind="unavailable")
        return {}

    monkeypatch.setattr("loomlog.connectors.kafka.memory_log.MemoryTail.end_offsets", end_offsets)
    hosted.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    hosted.host.flusher.in_flight_since = 0.0
    now[0] = 10 * watchdog.STALL_S
    await world.ticks(50)
    is_away = False
    await world.ticks(50)
    assert not hosted.task.done(), "the broker was away all the time"
    now[0] += watchdog.STALL_S + 1
    assert [type(error) for error in await ends(hosted.task)] == [RuntimeError]
