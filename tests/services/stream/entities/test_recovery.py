"""What the next owner of an entity partition has to find: deliveries that were not sent, commands that were handled."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace as changed
from typing import Any

import pytest

from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.records import replace
from loomlog.services.core.families import NAME_BYTES_MAX, Reads
from loomlog.services.stream.entities import checkpoints, replicas
from loomlog.services.stream.entities.answers import Answer, CommandInvalid
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.snapshots.snapshots import FoldStart
from tests.services.stream.entities.counters import FAMILY
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld, Process

REPLICATED = changed(FAMILY, reads=Reads.REPLICATED)


@pytest.fixture
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld()
    yield made
    await made.close()


@pytest.fixture
async def replicated() -> AsyncIterator[EntityWorld]:
    made = EntityWorld(families=(REPLICATED,))
    yield made
    await made.close()


def values(world: EntityWorld, name: str) -> list[int]:
    return [event.value for event in world.events(name) if isinstance(event, CounterIncremented)]


async def checkpointed(process: Process) -> bool:
    """Make a checkpoint of every partition with events; whether all could be made."""
    topic_set = process.entities.topic_set
    made = [
        await topic_set.checkpoints.make(owner)
        for owner in topic_set.owners.values()
        if owner.partition is not None and owner.partition.events_since_checkpoint
    ]
    return all(made)


async def died_before_sending(world: EntityWorld, command_id: str = "c2") -> Answer:
    """A process that dies with the event in the log, and before what it sends; there is a checkpoint below it."""
    process = await world.process()
    await world.ask(process, world.increment("from", "c1"))
    assert await checkpointed(process)
    process.entities.outbox.start = lambda partition, delivery, tenant: None  # type: ignore[method-assign]  # it dies here
    answer = await world.ask(process, world.increment("from", command_id, also="to"))
    await process.kill()
    return answer


async def read_ahead(process: Process) -> None:
    for owner in process.entities.topic_set.owners.values():
        await process.entities.read_ahead(owner)


async def test_a_delivery_is_sent_by_the_next_owner_although_the_row_has_its_event(world: EntityWorld) -> None:
    await died_before_sending(world)
    other = await world.process(name="b")
    await read_ahead(other)
    await world.until(lambda: values(world, "to") == [1])


async def test_a_delivery_of_a_replicated_family_is_sent_by_the_next_owner(replicated: EntityWorld) -> None:
    await died_before_sending(replicated)
    other = await replicated.process(name="b")
    await replicated.until(lambda: values(replicated, "to") == [1])
    await replicated.until(lambda: other.entities.outbox.pending_count() == 0)


@pytest.mark.parametrize("reads", list(Reads))
async def test_no_checkpoint_is_made_past_what_the_next_owner_has_to_send(reads: Reads) -> None:
    world = EntityWorld(families=(changed(FAMILY, reads=reads),))
    try:
        await died_before_sending(world)
        other = await world.process(name="b")
        was_made = await checkpointed(other)
        await other.kill()
        third = await world.process(name="c")
        await read_ahead(third)
        await world.until(lambda: values(world, "to") == [1])
        assert reads is Reads.REPLICATED or not was_made
    finally:
        await world.close()


async def test_a_command_in_a_snapshot_that_is_newer_than_the_checkpoint_is_known(
    replicated: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "batch_records", lambda records: [[record] for record in records])
    world = replicated
    process = await world.process()
    await world.ask(process, world.increment("hits", "c1"))
    assert await checkpointed(process)
    world.now += 60_000
    process.entities.outbox.start = lambda partition, delivery, tenant: None  # type: ignore[method-assign]  # it dies here
    first = await world.ask(process, world.increment("hits", "c2", also="to"))
    process.entities.outbox.release(first.partition)
    records = world.log.records[TOPICS.snapshots, first.partition]
    assert await checkpointed(process)
    del records[-1]  # the process died between the snapshot and the checkpoint
    await process.kill()
    other = await world.process(name="b")
    assert await world.ask(other, world.increment("hits", "c2", also="to")) == first
    assert values(world, "hits") == [1, 2]
    await world.until(lambda: values(world, "to") == [1])


async def start_of(world: EntityWorld) -> FoldStart:
    """Where the fold of partition 0 begins."""
    families = FamilySet(world.families)
    reading = checkpoints.EntityCheckpoints(
        families, CODEC, appender=world.log, ranges=world.log, topic=TOPICS.snapshots, events_topic=TOPICS.events
    )
    return await reading.load(0, 0)


async def test_a_checkpoint_writes_and_encodes_what_has_changed_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EntityWorld(families=(REPLICATED,), partitions=1)
    encoded: list[Any] = []
    snapshot = checkpoints._snapshot

    def counted(*parts: Any) -> Any:
        encoded.append(parts)
        return snapshot(*parts)

    monkeypatch.setattr(checkpoints, "_snapshot", counted)
    try:
        process = await world.process()
        for name in ("hits", "misses"):
            await world.ask(process, world.increment(name, f"c-{name}"))
        assert await checkpointed(process)
        assert len(encoded) == 2
        await world.ask(process, world.increment("hits", "c2"))
        assert await checkpointed(process)
        assert len(encoded) == 3
        kept = list(world.log.records[TOPICS.snapshots, 0])
        assert [record.key for record in kept].count(b"counter:acme/misses") == 1
        await process.kill()
        other = await world.process(name="b")
        assert other.entities.parts.replicas.state("counter:acme/hits").value == 2
        await world.ask(other, world.increment("misses", "c3"))
        assert await checkpointed(other)
        assert len(encoded) == 4, "what the last owner has written is known to the next one"
        start = await start_of(world)
        assert (start.ignored, {name: base.seq for name, base in start.bases.items()}) == (
            "",
            {"counter:acme/hits": 2, "counter:acme/misses": 2},
        )
    finally:
        await world.close()


async def test_aggregates_of_a_checkpoint_are_told_to_who_waits_for_them() -> None:
    world = EntityWorld(families=(REPLICATED,), partitions=1)
    try:
        process = await world.process()
        await world.ask(process, world.increment("hits", "c1"))
        assert await checkpointed(process)
        parts = world.parts(world.log)
        told: list[str] = []
        parts.replicas.on_fold("counter", told.append)
        await parts.replicas.open()
        assert told == ["counter:acme/hits"]
    finally:
        await world.close()


async def test_after_a_change_of_the_rules_every_snapshot_is_written_again() -> None:
    world = EntityWorld(families=(REPLICATED,), partitions=1)
    try:
        process = await world.process()
        for name in ("hits", "misses"):
            await world.ask(process, world.increment(name, f"c-{name}"))
        assert await checkpointed(process)
        await process.kill()
        world.families = (changed(REPLICATED, rules=changed(REPLICATED.rules, version=REPLICATED.rules.version + 1)),)
        other = await world.process(name="b")
        await world.ask(other, world.increment("hits", "c2"))
        assert await checkpointed(other)
        keys = [record.key for record in world.log.records[TOPICS.snapshots, 0]]
        assert keys.count(b"counter:acme/misses") == 2
        start = await start_of(world)
        assert start.ignored == ""
        assert len(start.bases) == 2
    finally:
        await world.close()


async def test_an_aggregate_with_the_longest_name_sends_too(world: EntityWorld) -> None:
    process = await world.process()
    await world.ask(process, world.increment("x" * NAME_BYTES_MAX, "c1", also="to"))
    await world.until(lambda: process.entities.outbox.pending_count() == 0)
    assert values(world, "to") == [1]


async def test_a_command_whose_rule_failed_is_answered_again_and_not_awaited(world: EntityWorld) -> None:
    process = await world.process()
    # Its event would not fit one append.
    large = replace(world.increment("hits", "c1"), also="x" * 900_000)
    for _ in range(2):
        with pytest.raises(CommandInvalid, match="at most"):
            await world.ask(process, large)
    assert (await world.ask(process, world.increment("hits", "c2"))).events[-1].value == 1


async def test_an_answer_that_falls_into_two_polls_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "POLL_RECORDS_MAX", 1)

    def decide(state: object, command: IncrementCounter, at: object) -> object:
        return [CounterIncremented(by=1, value=value) for value in range(1, command.by + 1)]

    world = EntityWorld(families=(changed(FAMILY, rules=changed(FAMILY.rules, decide=decide)),))
    try:
        process = await world.process()
        sender = await world.sender()
        answer = await world.ask(sender, world.increment("hits", "c1", 3))
        assert [event.value for event in answer.events] == [1, 2, 3]
        assert answer == await world.ask(process, world.increment("hits", "c1", 3))
    finally:
        await world.close()


async def test_two_that_wait_for_the_same_command_are_both_answered(world: EntityWorld) -> None:
    await world.process()
    sender = await world.sender()
    world.rows.away = True  # so that only the log answers
    command = world.increment("hits", "c1")
    one, other = await asyncio.gather(world.ask(sender, command, 2.0), world.ask(sender, command, 2.0))
    assert one == other


async def test_owners_whose_clock_is_an_hour_behind_know_what_was_handled(world: EntityWorld) -> None:
    command = world.increment("hits", "c1")
    first = await world.process()
    answer = await world.ask(first, command)
    await first.kill()
    world.now -= 3_600_000
    other = await world.process(name="b")
    await read_ahead(other)
    await world.until(lambda: not other.handler(answer.partition).untouched())
    assert await checkpointed(other)
    await other.kill()
    third = await world.process(name="c")
    assert await world.ask(third, command) == answer
    assert values(world, "hits") == [1]
