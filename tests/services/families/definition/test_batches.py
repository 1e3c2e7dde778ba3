"""Batches of definitions: one change for every reader, whatever a process has read, and whoever dies meanwhile."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.definitions import KINDS, canonical_json
from loomlog.connectors.protocols import LogRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.definition_commands import (
    ApplyDefinitions,
    DefineVersion,
    PromoteVersion,
    RetireVersion,
    StageVersion,
)
from loomlog.schemas.generated.definition_events import ApplyBegan, DefPromoted, DefVersionCreated, VersionStaged
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope, DefinitionChange
from loomlog.schemas.position import Position
from loomlog.services.core.definitions import def_id
from loomlog.services.core.families import At
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.apply import APPLIED, KIND, REFUSED, Batch, decide_batch
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.decide import decide
from loomlog.services.families.definition.kind_api import APPLY
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.query_api import LIST_PAST
from loomlog.services.families.definition.state import Line, evolve, line_id
from loomlog.services.families.definition.table import DefinitionTable, file_definition
from tests.services.families.contract import loop_checks
from tests.services.families.contract.cases import CASES, Case
from tests.services.families.contract.world import TENANT, ContractWorld, Fault, world_of
from tests.services.families.definition.opened import Opened, fields_of
from tests.services.log_entities import LogEntities
from tests.services.stream.entities.world import TOPICS

CASE = next(case for case in CASES if case.family is FAMILY)
AGENT = KINDS["agent"]
NAMES = ("helper", "writer", "critic", "filed")
FILED = file_definition("agent", "filed", AGENT.compose("filed", {"model": "m", "system_prompt": "file"}))
AT = At(at_ms=1_000, caller="ada")


def content(prompt: str) -> str:
    return canonical_json(AGENT.compose("x", {"model": "m", "system_prompt": prompt}))


def change(name: str, prompt: str, **fields: Any) -> DefinitionChange:
    return DefinitionChange(kind="agent", name=name, content=content(prompt), **fields)


def define(envelope: CommandEnvelope, name: str, prompt: str) -> DefineVersion:
    return DefineVersion(envelope=envelope, kind="agent", name=name, content=content(prompt))


def batch(envelope: CommandEnvelope, name: str, *changes: DefinitionChange) -> ApplyDefinitions:
    return ApplyDefinitions(envelope=envelope, kind=KIND, name=name, changes=changes)


# --- what a process sees ---------------------------------------------------------------------------------------------


@dataclass
class Told:
    """The events of each partition, from a world that has settled."""

    partitions: Sequence[Sequence[LogRecord]]
    world: ContractWorld

    async def reader(self) -> tuple[Any, DefinitionTable]:
        """A process that has read nothing."""
        world = world_of(CASE, partitions=len(self.partitions))
        parts = world.parts(world.log)
        await parts.replicas.open()
        table = DefinitionTable(parts.replicas, {}, blobs=MemoryBlobs(), reads=LogEntities())
        return parts.replicas, table


async def told(*scripts: Any) -> Told:
    """The events of commands, each a function of an envelope, carried out one after the other."""
    async with loop_checks.opened(CASE, partitions=3, shares=(frozenset({0, 1, 2}),)) as world:
        for number, script in enumerate(scripts):
            await world.answer(script(world.envelope(f"c{number}", TENANT)))
            await world.settle()
    return Told([list(world.log.records[TOPICS.events, number]) for number in range(3)], world)


def seen(table: DefinitionTable, names: Sequence[str] = NAMES[:3]) -> tuple[int, ...]:
    """Number of the version that each name resolves to; 0: none."""
    found = [table.resolve("agent", TENANT, name) for name in names]
    return tuple(0 if one is None else one.version for one in found)


OLD = [lambda envelope, name=name: define(envelope, name, "old") for name in NAMES[:2]]
NEW = lambda envelope: batch(envelope, "b1", *(change(name, "new") for name in NAMES[:3]))  # noqa: E731
NEWER = lambda envelope: batch(envelope, "b2", change("helper", "newer"), change("critic", "newer"))  # noqa: E731
BAD = lambda envelope: batch(envelope, "b3", change("helper", "bad"), change("writer", "bad", expect_active="def_x"))  # noqa: E731

ORDERS = st.lists(st.integers(0, 2), max_size=200)


async def interleaved(story: Told, order: Sequence[int]) -> list[tuple[int, ...]]:
    """What a process sees that reads the partitions in this order, a record at a time, and then the rest."""
    replicas, table = await story.reader()
    offsets = [0] * len(story.partitions)
    views = [seen(table)]
    rest = [number for number, records in enumerate(story.partitions) for _ in records]
    for number in [*order, *rest]:
        if offsets[number] < len(story.partitions[number]):
            await replicas.feed(number, [story.partitions[number][offsets[number]]])
            offsets[number] += 1
            views.append(seen(table))
    return views


async def test_the_names_are_in_different_partitions() -> None:
    story = await told(*OLD, NEW)
    assert all(story.partitions), "the property below needs several partitions"


@pytest.fixture(scope="module")
def stories() -> dict[str, Told]:
    return {}


@pytest.mark.parametrize("name", ["one", "two", "refused"])
async def test_no_reader_ever_sees_a_part(name: str) -> None:
    scripts = {"one": [*OLD, NEW], "two": [*OLD, NEW, NEWER], "refused": [*OLD, BAD, NEW]}[name]
    story = await told(*scripts)
    after = {"one": (2, 2, 1), "two": (3, 2, 2), "refused": (3, 2, 1)}[name]
    together = {"one": [(2, 2, 1)], "two": [(2, 2, 1), (3, 0, 2)], "refused": [(3, 2, 1)]}[name]
    examples: list[list[int]] = []

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(ORDERS)
    def collect(order: list[int]) -> None:
        examples.append(order)

    collect()
    for order in examples:
        views = await interleaved(story, order)
        assert views[-1] == after
        for view in views:
            for made in together:
                pairs = [(number, of_batch) for number, of_batch in zip(view, made, strict=True) if of_batch]
                if any(number == of_batch for number, of_batch in pairs):
                    assert all(number >= of_batch for number, of_batch in pairs), (view, made)


async def test_a_later_promotion_of_a_line_is_seen_at_once() -> None:
    """Whoever promotes must see it, also in a process that has not read the other lines of an earlier batch."""
    old = def_id(TENANT, "agent", "helper", 1)
    story = await told(
        *OLD, NEW, lambda envelope: PromoteVersion(envelope=envelope, kind="agent", name="helper", def_id=old)
    )
    replicas, table = await story.reader()
    aggregate = f"{TENANT}/agent/helper".encode()
    for number, records in enumerate(story.partitions):
        if any(record.key == aggregate for record in records):
            await replicas.feed(number, records)
    assert seen(table)[0] == 1


async def test_positions_of_a_line_include_its_batch() -> None:
    story = await told(*OLD, NEW)
    replicas, table = await story.reader()
    for number, records in enumerate(story.partitions):
        await replicas.feed(number, records)
    line = table.line("agent", TENANT, "helper")
    assert line is not None
    tokens = table.positions(line, now_ms=line.promoted_at_ms)
    assert len(tokens) == len({token.partition(":")[0] for token in tokens}) > 1
    other, seen_by_other = await story.reader()
    for token in tokens:
        position = Position.parse(token)
        await other.feed(position.partition, story.partitions[position.partition][: position.offset + 1])
    assert seen(seen_by_other) == (2, 2, 1)
    assert table.positions(line, now_ms=line.promoted_at_ms + 10**9) == [table.position(line)]


# --- deaths ----------------------------------------------------------------------------------------------------------


class BatchCase(Case):
    """The family with a script of batches: applied, with equal content, with a file, refused."""

    def examples(self, envelope: CommandEnvelope) -> list[Any]:
        base = {"base_content": FILED.text, "base_sha256": FILED.content_sha256}
        return [
            define(envelope, "helper", "old"),
            batch(envelope, "b1", change("helper", "new"), change("filed", "over", **base), change("critic", "x")),
            batch(envelope, "b2", change("helper", "bad"), change("critic", "bad", expect_active="def_x")),
            batch(envelope, "b3", change("helper", "new"), change("critic", "y")),
        ]


BATCHES = BatchCase(name=CASE.name, family=CASE.family, families=CASE.families)


async def test_an_owner_may_die_at_any_append() -> None:
    await loop_checks.any_fault_leaves_the_same(BATCHES, "dies before", "dies after", shared=True)


async def test_batches_are_decided_and_lines_settled() -> None:
    world = await loop_checks.played(BATCHES, Fault())
    states: dict[str, Any] = {name.partition("/")[2]: one.state for name, one in world.folded().items()}
    batches = [states[line_id(KIND, name)] for name in ("b1", "b2", "b3")]
    assert [one.status for one in batches] == [APPLIED, REFUSED, APPLIED]
    assert (batches[1].reason, batches[1].message.partition(":")[0]) == ("definition_conflict", "critic")
    helper, filed, critic = (states[line_id("agent", name)] for name in ("helper", "filed", "critic"))
    assert [line.staged for line in (helper, filed, critic)] == [0, 0, 0]
    assert [version.is_retired for version in helper.versions] == [False, False, True]
    assert (helper.active, critic.active, len(critic.versions)) == (2, 2, 2)
    assert (filed.active, filed.versions[0].is_bootstrapped, filed.versions[1].parent) == (
        2,
        True,
        filed.id_of(1),
    )


# --- rules -----------------------------------------------------------------------------------------------------------


def folded(line: Any, *events: Any) -> Any:
    for event in events:
        line = evolve(line, event, AT.at_ms)
    return line


def staged(**fields: Any) -> tuple[Line, Sequence[Any]]:
    """The line helper with an active version, and then a stage."""
    line = Line(tenant=TENANT, kind="agent", name="helper")
    line = folded(line, *decide(line, define(CommandEnvelope(command_id="c"), "helper", "old"), AT))
    events = decide(line, stage(**fields), AT)
    return folded(line, *events), events


def stage(prompt: str = "new", **fields: Any) -> StageVersion:
    named: dict[str, Any] = {"kind": "agent", "name": "helper", "batch": "b", "change": 0, "content": content(prompt)}
    return StageVersion(envelope=CommandEnvelope(command_id="c"), **named | fields)


def test_a_stage_tells_first_what_the_version_waits_for() -> None:
    _, events = staged()
    assert [type(event) for event in events] == [VersionStaged, DefVersionCreated]


@pytest.mark.parametrize("number", [1, 2])
def test_a_line_that_waits_refuses_to_retire_a_version(number: int) -> None:
    line, _ = staged()
    command = RetireVersion(
        envelope=CommandEnvelope(command_id="r"), kind="agent", name="helper", def_id=line.id_of(number)
    )
    (refused,) = decide(line, command, AT)
    assert isinstance(refused, CommandRefused)
    assert refused.code == "definition_conflict"


def test_equal_content_is_staged_without_a_version() -> None:
    line, events = staged(prompt="old")
    assert [type(event) for event in events] == [VersionStaged]
    assert (line.staged, len(line.versions)) == (1, 1)


def test_a_promotion_remembers_its_batch_until_the_next_one() -> None:
    line, _ = staged()
    promoted = DefPromoted(kind="agent", name="helper", to_def_id=line.id_of(2), version=2, batch="b")
    line = folded(line, promoted)
    assert (line.batch, line.batches, line.staged) == ("b", (("b", 1),), 0)
    line = folded(line, DefPromoted(kind="agent", name="helper", to_def_id=line.id_of(1), version=1))
    assert line.batch == ""


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ((), "too_many"),
        ((change("a", "x"), change("a", "y")), "invalid_definition"),
        ((DefinitionChange(kind="apply", name="a", content="{}"),), "invalid_definition"),
        ((DefinitionChange(kind="volume", name="a", content="{}"),), "invalid_definition"),
        ((change("../a", "x"),), "bad_name"),
        ((change("a" * 600, "x"),), "bad_name"),
        ((change("\ud800", "x"),), "bad_name"),
    ],
)
def test_a_batch_whose_lines_cannot_be_is_refused_before_it_begins(changes: Any, code: str) -> None:
    (refused,) = decide_batch(Batch(id="b"), batch(CommandEnvelope(command_id="c"), "b", *changes), AT)
    assert isinstance(refused, CommandRefused)
    assert refused.code == code
    (began,) = decide_batch(Batch(id="b"), batch(CommandEnvelope(command_id="c"), "b", change("a", "x")), AT)
    assert isinstance(began, ApplyBegan)


# --- the operation ---------------------------------------------------------------------------------------------------


AUTHOR = Author(tenant=TENANT, subject="ada", command_id="apply-1", issued_at_ms=0)
DEFINITIONS = [{"kind": "agent", "name": name, "overlay": {"model": "m"}} for name in NAMES[:3]]


class Applying:
    """A process that applies definitions."""

    def __init__(self, world: ContractWorld, opened: Opened) -> None:
        self.world, self.opened = world, opened
        self.table: DefinitionTable = opened.get(DefinitionTable)

    async def apply(self, definitions: Any = DEFINITIONS, author: Author = AUTHOR) -> Answer[Any]:
        return await self.opened.carry_out(APPLY, author, definitions=definitions, description="together")

    async def at(self, **fields: Any) -> Any:
        return fields_of(await self.opened.carry_out(LIST_PAST, AUTHOR, **fields))


@asynccontextmanager
async def applying() -> AsyncIterator[Applying]:
    async with loop_checks.opened(CASE, partitions=3, shares=(frozenset({0, 1, 2}),)) as world:
        parts, entities = await world.sender(), LogEntities(3)
        entities.attach(world.log, parts)
        yield Applying(world, Opened(parts.replicas, parts.client, entities, ranges=world.log))


async def test_the_answer_comes_when_everything_can_be_used() -> None:
    async with applying() as here:
        answer = await here.apply()
        assert seen(here.table) == (1, 1, 1)
        assert [row.promoted for row in answer.value.definitions] == [True] * 3
        assert len(answer.positions) > 1
        assert await here.apply() == answer


async def test_a_batch_that_is_not_decided_is_pending() -> None:
    async with applying() as here:
        here.opened.get(DefinitionOperations).wait_s = 0.05
        for process in here.world.owners:
            process.entities.outbox.start = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(Unavailable) as caught:
            await here.apply()
        assert caught.value.is_unknown
        assert "not decided" in str(caught.value)


# --- the past --------------------------------------------------------------------------------------------------------


def tick(world: ContractWorld) -> int:
    world.now += 1
    return world.now


async def test_no_moment_of_the_past_has_a_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each position and each millisecond: the owner's clock ticks whenever it is asked."""
    monkeypatch.setattr(ContractWorld, "clock", tick)
    async with applying() as here:
        world = here.world
        begin = world.now
        await here.apply()
        again = [{"kind": "agent", "name": name, "overlay": {"effort": "low"}} for name in NAMES[:3]]
        await here.apply(again, replace(AUTHOR, command_id="apply-2"))
        await world.settle()
        moments = [await here.at(time=format_rfc3339(at_ms)) for at_ms in range(begin, world.now + 2)]
        for number in range(3):
            for offset in range(len(world.log.records[TOPICS.events, number])):
                try:
                    moments.append(await here.at(position=f"{TOPICS.events}/{number}:{offset}"))
                except Refused:
                    continue  # a claim of a partition has no time
        versions = {tuple(row["version"] for row in moment["definitions"]) for moment in moments}
        assert versions == {(), (1, 1, 1), (2, 2, 2)}
