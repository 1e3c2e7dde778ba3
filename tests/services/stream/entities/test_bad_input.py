"""What must stop nothing: rules that raise, families that are not there, foreign records, read models that are away."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace as changed

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.budget_commands import RemoveLimit
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Family
from loomlog.services.stream.entities.answers import CommandInvalid
from tests.services.families.contract.world import ProjectedRows
from tests.services.stream.entities.counters import FAMILY, Counter
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld, Process

HOUR_MS = 3_600_000
ABSENT = changed(FAMILY, name="absent")
"""A family of other processes. Its events are those of counters."""


class ProjectedWorld(EntityWorld):
    """A world whose rows are written by the projection's own code."""

    def make_rows(self) -> ProjectedRows:
        return ProjectedRows(self.log, self.families, self.partitions)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProjectedWorld]:
    monkeypatch.setattr("loomlog.services.stream.entities.checkpoints.PROJECTOR_WAIT_S", 0)
    monkeypatch.setattr("loomlog.services.stream.partition.lookups.LOOKUP_RETRY_S", 0)
    made = ProjectedWorld()
    yield made
    await made.close()


async def checkpointed(process: Process) -> list[bool]:
    """Try to make a checkpoint of every partition with events."""
    topic_set = process.entities.topic_set
    return [
        await topic_set.checkpoints.make(owner)
        for owner in topic_set.owners.values()
        if owner.partition is not None and owner.partition.events_since_checkpoint
    ]


def broken() -> Family[object, object, object]:
    def decide(state: Counter, command: object, at: object) -> object:
        raise ZeroDivisionError("a bug in decide")

    return changed(FAMILY, rules=changed(FAMILY.rules, decide=decide))


async def test_a_rule_that_raises_at_the_first_command_leaves_no_aggregate() -> None:
    world = EntityWorld(families=(broken(),))
    try:
        process = await world.process()
        for _ in range(2):
            with pytest.raises(CommandInvalid, match="a bug in decide"):
                await world.ask(process, world.increment("hits", "c1"))
        world.put(world.increment("hits", "c2"))
        await world.until(lambda: world.log.records[TOPICS.dead_letters, 0])
        assert world.events("hits") == []
    finally:
        await world.close()


async def test_events_of_a_family_that_is_not_here_stop_nothing(world: ProjectedWorld) -> None:
    other = EntityWorld(families=(ABSENT,))
    other.log = world.log
    try:
        process = await other.process()
        for name in ("hits", "misses", "far"):
            await other.ask(process, other.increment(name, "there"))
        await process.kill()
        here = await world.process(name="b")
        sender = await world.sender()
        for name in ("hits", "misses", "far"):
            assert (await world.ask(here, world.increment(name, f"{name}1"))).events[-1].value == 1
            assert (await world.ask(sender, world.increment(name, f"{name}2"))).events[-1].value == 2
        assert all(await checkpointed(here))
        await here.kill()
        third = await world.process(name="c")
        assert (await world.ask(third, world.increment("hits", "c3"))).events[-1].value == 3
        with pytest.raises(CommandInvalid, match="no family of this process"):
            await world.ask(
                third, RepairAggregate(envelope=world.envelope("fix"), aggregate="absent:acme/hits", reason="mended")
            )
    finally:
        await other.close()


async def test_foreign_records_on_the_shared_topics_stop_nothing(world: ProjectedWorld) -> None:
    process = await world.process()
    await world.ask(process, world.increment("hits", "c1"))
    command = RemoveLimit(envelope=world.envelope("b1"), tenant="acme", scope="tenant", scope_id="acme")
    forged = Envelope(
        term=99, seq=2, aggregate="counter:acme/hits", tenant="acme", at_ms=world.now, prev=bytes(16), cause_id="c9"
    )
    for number in range(world.partitions):
        junk = [ProducerRecord(key=b"acme/hits", value=value) for value in (b"{}", None, CODEC.encode(command))]
        world.log.put(TOPICS.commands, number, junk)
        event = CODEC.encode_event(forged, CounterIncremented(by=5, value=5))
        world.log.put(TOPICS.events, number, [*junk, ProducerRecord(key=b"acme/hits", value=event)])
        world.log.put(TOPICS.snapshots, number, junk)
    await world.until(lambda: len(world.log.records[TOPICS.dead_letters, 0]) >= 3 * world.partitions)
    assert (await world.ask(process, world.increment("hits", "c2"))).events[-1].value == 2
    await process.kill()
    other = await world.process(name="b")
    assert (await world.ask(other, world.increment("hits", "c3"))).events[-1].value == 3
    assert (await world.ask(other, world.increment("hits", "c1"))).events[-1].value == 1


async def test_a_projector_that_is_away_for_an_hour_costs_checkpoints_and_nothing_else(
    world: ProjectedWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.hosting.HOT_AGGREGATES_MAX", 0)
    process = await world.process()
    await world.ask(process, world.increment("cold", "c0"))
    assert all(await checkpointed(process))
    world.rows.behind = {number: cursor.next_offset for number, cursor in world.rows.positions().items()}
    for number in range(20):
        world.now += HOUR_MS // 20
        await world.ask(process, world.increment(f"n{number % 4}", f"c{number + 1}"))
        with caplog.at_level(logging.WARNING):
            assert not any(await checkpointed(process))
    assert "no partition snapshot can be made: the projector has reached" in caplog.text
    hot = {name for owner in process.entities.topic_set.owners.values() for name in owner.partition.aggregates}
    assert {f"counter:acme/n{number}" for number in range(4)} <= hot, "what is not in the rows stays in memory"
    await process.kill()
    other = await world.process(name="b")
    for number in range(4):
        answer = await world.ask(other, world.increment(f"n{number}", f"d{number}"))
        assert answer.events[-1].value == 6
    assert (await world.ask(other, world.increment("cold", "d9"))).events[-1].value == 2
    world.rows.behind = {}
    assert all(await checkpointed(other))
    assert other.entities.topic_set.checkpoints.failed == {}


async def test_rows_that_were_lost_are_folded_from_the_log_again(world: ProjectedWorld) -> None:
    process = await world.process()
    commands = [world.increment(f"n{number}", f"c{number}", number + 1) for number in range(8)]
    for command in commands:
        await world.ask(process, command)
    assert all(await checkpointed(process))
    world.now += HOUR_MS
    await process.kill()
    world.rows.rebuild()
    world.rows.behind = {0: 0, 1: 0}
    other = await world.process(name="b")
    repeated = [asyncio.ensure_future(world.ask(other, command)) for command in commands]
    waiting = [
        asyncio.ensure_future(world.ask(other, world.increment(f"n{number}", f"d{number}"))) for number in range(8)
    ]
    await world.until(lambda: other.entities.topic_set.pending_commands == 16)
    assert not any(answer.done() for answer in (*repeated, *waiting))
    world.rows.behind = {}
    for number in range(8):
        assert (await repeated[number]).events[-1].value == number + 1
        assert (await waiting[number]).events[-1].value == number + 2
