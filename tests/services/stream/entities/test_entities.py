"""Entities over the real loop: answers, repetitions, take-overs, aggregates at rest, timers, the outbox, repairs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.entity_events import (
    AggregateQuarantined,
    AggregateRestated,
    CommandHadNoEffect,
    CommandRefused,
)
from loomlog.schemas.ids import with_body
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.stream.entities import handler as handler_module
from loomlog.services.stream.entities import replicas as replicas_module
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandReused, CommandUnanswered
from tests.services.stream.entities.counters import FAMILY, Counter
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld, Process


@pytest.fixture
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld()
    yield made
    await made.close()


async def checkpointed(world: EntityWorld, process: Process) -> None:
    """Make a checkpoint of every partition now."""
    for owner in process.entities.topic_set.owners.values():
        if owner.partition is not None and owner.partition.events_since_checkpoint:
            assert await process.entities.topic_set.checkpoints.make(owner)


def values(world: EntityWorld, name: str) -> list[int]:
    return [event.value for event in world.events(name) if isinstance(event, CounterIncremented)]


async def test_a_command_is_answered_with_its_events_and_their_place(world: EntityWorld) -> None:
    process = await world.process()
    answer = await world.ask(process, world.increment("hits", "c1", 3))
    assert answer.events == (CounterIncremented(by=3, value=3),)
    record = world.log.records[TOPICS.events, answer.partition][answer.offset]
    assert CODEC.decode(record.value or b"").record == answer.events[0]
    assert answer.position == f"{TOPICS.events}/{answer.partition}:{answer.offset}"
    assert not world.log.records[TOPICS.commands, answer.partition], "it was handed over in memory"


async def test_a_process_catches_up_with_all_that_is_in_the_log(world: EntityWorld) -> None:
    owner, late = await world.process(), await world.sender()
    await world.ask(owner, world.increment("hits", "c1", 3))
    await late.replicas.catch_up(timeout_s=1.0)
    ends = {number: len(world.log.records[TOPICS.events, number]) for number in range(world.partitions)}
    assert {number: late.replicas.next_offset(number) for number in ends} == ends
    assert late.replicas.records_read == sum(ends.values()) > 0
    world.processes[-1].tasks[0].cancel()  # it follows the log no more
    await world.ask(owner, world.increment("hits", "c2", 1))
    with pytest.raises(Transient, match="not read yet"):
        await late.replicas.catch_up(timeout_s=0.01)


async def test_a_process_that_owns_nothing_sends_by_the_topic_and_gets_the_same_answer(world: EntityWorld) -> None:
    await world.process()
    sender = await world.sender()
    answer = await world.ask(sender, world.increment("hits", "c1", 3))
    assert answer.events == (CounterIncremented(by=3, value=3),)
    assert len(world.log.records[TOPICS.commands, answer.partition]) == 1


async def test_a_process_that_waits_for_nothing_rests_between_polls_and_is_there_when_it_does(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "REST_S", 3_600.0)
    owner, sender = await world.process(), await world.sender()
    first = await world.ask(owner, world.increment("hits", "c1"))
    replicas = sender.replicas
    await world.until(lambda: replicas.next_offset(first.partition) > first.offset)
    later = await world.ask(owner, world.increment("hits", "c2"))
    await settled()
    assert replicas.next_offset(first.partition) <= later.offset, "it rests"
    assert await replicas.wait(later.partition, later.offset, timeout_s=30.0) == 0
    await settled()
    answer = await world.ask(sender, world.increment("hits", "c3"))
    assert values(world, "hits") == [1, 2, 3]
    assert replicas.next_offset(answer.partition) > answer.offset


async def test_a_family_that_is_read_at_once_lets_nothing_rest(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "REST_S", 3_600.0)
    owner, sender = await world.process(), await world.sender()
    seen: list[int] = []
    sender.replicas.on_event("counter", lambda partition, event: seen.append(event.offset), at_once=True)
    for number in range(3):
        await world.ask(owner, world.increment("hits", f"c{number}"))
        await world.until(lambda: len(seen) > number)  # noqa: B023 - awaited before the next


async def settled() -> None:
    """Let everything that is ready happen."""
    for _ in range(200):
        await asyncio.sleep(0)


ONE, OTHER = with_body("c1", "one"), with_body("c1", "other")
"""Ids of a command under one key, with two bodies."""


@pytest.mark.parametrize("by_topic", [False, True])
async def test_another_body_under_the_key_of_a_command_is_refused(world: EntityWorld, by_topic: bool) -> None:
    process = await world.process()
    sender = await world.sender() if by_topic else process
    first = await world.ask(sender, world.increment("hits", ONE, 3))
    with pytest.raises(CommandReused):
        await world.ask(sender, world.increment("hits", OTHER, 4))
    assert await world.ask(sender, world.increment("hits", ONE, 3)) == first
    assert values(world, "hits") == [3]


async def test_of_two_bodies_at_once_under_one_key_one_is_carried_out(world: EntityWorld) -> None:
    process = await world.process()
    outcomes = await asyncio.gather(
        world.ask(process, world.increment("hits", ONE)),
        world.ask(process, world.increment("hits", OTHER)),
        return_exceptions=True,
    )
    assert [type(one) for one in outcomes] == [Answer, CommandReused]
    assert values(world, "hits") == [1]


@pytest.mark.parametrize("is_checkpointed", [False, True])
async def test_the_next_owner_refuses_another_body(world: EntityWorld, is_checkpointed: bool) -> None:
    process = await world.process()
    await world.ask(process, world.increment("hits", ONE, 3))
    if is_checkpointed:
        await checkpointed(world, process)
    await process.kill()
    world.now += 3_600_000
    process = await world.process(name="b")
    other = world.increment("hits", OTHER, 4)
    with pytest.raises(CommandReused):
        await world.ask(process, replace(other, envelope=replace(other.envelope, issued_at_ms=0)))
    assert values(world, "hits") == [3]


async def test_two_at_once_with_one_id_are_one(world: EntityWorld) -> None:
    process = await world.process()
    one, other = await asyncio.gather(
        world.ask(process, world.increment("hits", "c1")), world.ask(process, world.increment("hits", "c1"))
    )
    assert one == other
    assert values(world, "hits") == [1]


async def test_a_refusal_and_a_command_without_effect_are_answers_too(world: EntityWorld) -> None:
    process = await world.process()
    refused = await world.ask(process, world.increment("hits", "c1", 0))
    assert isinstance(refused.events[-1], CommandRefused)
    assert (await world.ask(process, world.reset("hits", "c2"))).events == (CommandHadNoEffect(),)
    assert (await world.ask(process, world.increment("hits", "c3"))).events[-1].value == 1


async def test_commands_that_cannot_be_are_said_to_be_so(world: EntityWorld) -> None:
    process = await world.process()
    with pytest.raises(CommandInvalid, match="expected 1 to"):
        await world.ask(process, world.increment("", "c1"))
    with pytest.raises(CommandInvalid, match="printable"):
        await world.ask(process, world.increment("a\x00b", "c1"))
    with pytest.raises(CommandInvalid, match="id of 1 to"):
        await world.ask(process, world.increment("hits", ""))


# --- at rest ---------------------------------------------------------------------------------------------------------


async def test_an_aggregate_rests_after_a_checkpoint_and_comes_back(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.hosting.HOT_AGGREGATES_MAX", 0)
    process = await world.process()
    for number in range(8):
        await world.ask(process, world.increment(f"n{number}", f"c{number}", number + 1))
    await checkpointed(world, process)
    owners = process.entities.topic_set.owners.values()
    assert all(not owner.partition.aggregates for owner in owners if owner.partition is not None)
    for number in range(8):
        answer = await world.ask(process, world.increment(f"n{number}", f"d{number}"))
        assert answer.events[-1].value == number + 2
    assert process.entities.handlers.loaded == 8


async def test_a_take_over_after_a_checkpoint_loads_only_what_is_asked_for(world: EntityWorld) -> None:
    process = await world.process()
    for number in range(8):
        await world.ask(process, world.increment(f"n{number}", f"c{number}", number + 1))
    await checkpointed(world, process)
    await world.ask(process, world.increment("n3", "d3"))
    await process.kill()
    other = await world.process(name="b")
    assert world.rows.loads == 0
    assert (await world.ask(other, world.increment("n3", "e3"))).events[-1].value == 6
    assert (await world.ask(other, world.increment("n5", "e5"))).events[-1].value == 7
    assert world.rows.loads == 2


async def test_hot_aggregates_go_on_while_the_rows_are_away_and_cold_ones_wait(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.stream.partition.lookups.LOOKUP_RETRY_S", 0)
    process = await world.process()
    await world.ask(process, world.increment("cold", "c1"))
    await checkpointed(world, process)
    await process.kill()
    world.now += 3_600_000  # commands that were sent before the checkpoint are looked up
    other = await world.process(name="b")
    await world.ask(other, world.increment("hot", "c2"))
    world.rows.away = True
    waiting = asyncio.ensure_future(world.ask(other, world.increment("cold", "c3")))
    assert (await world.ask(other, world.increment("hot", "c4"))).events[-1].value == 2
    assert not waiting.done()
    world.rows.away = False
    assert (await waiting).events[-1].value == 2


async def test_a_checkpoint_names_no_aggregates(world: EntityWorld) -> None:
    process = await world.process()
    for number in range(300):
        await world.ask(process, world.increment(f"n{number}", f"c{number}"))
    await checkpointed(world, process)
    records = world.log.records[TOPICS.snapshots, 0]
    assert len(records) == 1
    assert len(records[0].value or b"") < 300


# --- the outbox ------------------------------------------------------------------------------------------------------


async def test_no_checkpoint_is_made_past_a_delivery_on_its_way(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.checkpoints.DELIVERY_WAIT_S", 0)
    process = await world.process()
    answer = await world.ask(process, world.increment("from", "c1", also="to"))
    await world.until(lambda: process.entities.outbox.pending_count() == 0)
    process.entities.outbox.register(answer.partition, answer.offset, _delivery())
    topic_set = process.entities.topic_set
    assert not await topic_set.checkpoints.make(topic_set.owners[answer.partition])
    assert "on their way" in topic_set.checkpoints.failed[answer.partition]


async def test_a_checkpoint_waits_for_the_deliveries_below_it_and_for_no_later_ones(world: EntityWorld) -> None:
    process = await world.process()
    answer = await world.ask(process, world.increment("from", "c1", also="to"))
    outbox, topic_set = process.entities.outbox, process.entities.topic_set
    await world.until(lambda: outbox.pending_count() == 0)
    outbox.register(answer.partition, answer.offset, _delivery())
    making = asyncio.create_task(topic_set.checkpoints.make(topic_set.owners[answer.partition]))
    await world.until(lambda: topic_set.owners[answer.partition].partition.events_since_checkpoint == 0)
    outbox.hold(answer.partition, "counter:acme/later", 1_000_000)
    assert not making.done()
    outbox.unhold(answer.partition, _delivery().id)
    assert await making


async def test_what_a_released_partition_had_to_send_is_not_delivered(world: EntityWorld) -> None:
    process = await world.process()
    answer = await world.ask(process, world.increment("from", "c1", also="to"))
    outbox = process.entities.outbox
    await world.until(lambda: outbox.pending_count() == 0)
    outbox.register(answer.partition, answer.offset, _delivery())
    waiting = asyncio.create_task(outbox.delivered_below(answer.partition, answer.offset + 1, 0.1))
    await asyncio.sleep(0)
    outbox.release(answer.partition)
    assert not await waiting


def _delivery() -> Any:
    from loomlog.services.core.families import Send
    from loomlog.services.stream.entities.families import Deliver

    return Deliver(id="counter:acme/from:1:0", send=Send(to="counter", command=None), at_ms=0)


# --- quarantine and repair -------------------------------------------------------------------------------------------


async def test_a_rule_that_raises_quarantines_one_aggregate_until_it_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decide(state: Counter, command: object, at: object) -> object:
        if getattr(command, "by", 0) == 13:
            raise ZeroDivisionError("a bug in decide")
        return FAMILY.rules.decide(state, command, at)  # type: ignore[arg-type]

    broken = _with_rules(decide=decide)
    world = EntityWorld(families=(broken,))
    try:
        process = await world.process()
        await world.ask(process, world.increment("hits", "c1", 3))
        answer = await world.ask(process, world.increment("hits", "c2", 13))
        assert isinstance(answer.events[-1], AggregateQuarantined)
        refused = await world.ask(process, world.increment("hits", "c3"))
        assert isinstance(refused.events[-1], CommandRefused)
        assert refused.events[-1].code == "quarantined"
        assert (await world.ask(process, world.increment("others", "c4"))).events[-1].value == 1
        repair = RepairAggregate(envelope=world.envelope("fix"), aggregate="counter:acme/hits", reason="mended")
        assert isinstance((await world.ask(process, repair)).events[-1], AggregateRestated)
        assert (await world.ask(process, world.increment("hits", "c5"))).events[-1].value == 4
        await process.kill()
        other = await world.process(name="b")
        assert (await world.ask(other, world.increment("hits", "c6"))).events[-1].value == 5
    finally:
        await world.close()


async def test_an_event_that_cannot_be_folded_is_got_over_by_a_new_state(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = {"on": False}

    def evolve(state: Counter, event: object, at_ms: int) -> Counter:
        if bug["on"] and getattr(event, "by", 0) == 13:
            raise ZeroDivisionError("a bug in evolve")
        return FAMILY.rules.evolve(state, event, at_ms)  # type: ignore[arg-type]

    world = EntityWorld(families=(_with_rules(evolve=evolve),))
    try:
        process = await world.process()
        await world.ask(process, world.increment("hits", "c1", 13))
        await world.ask(process, world.increment("others", "c2"))
        await process.kill()
        bug["on"] = True
        other = await world.process(name="b")
        refused = await world.ask(other, world.increment("hits", "c3"))
        assert refused.events[-1].code == "quarantined"
        assert (await world.ask(other, world.increment("others", "c4"))).events[-1].value == 2
        state = StateCodec(Counter).encode(Counter(value=20))
        repair = RepairAggregate(envelope=world.envelope("fix"), aggregate="counter:acme/hits", state=state)
        await world.ask(other, repair)
        assert (await world.ask(other, world.increment("hits", "c5"))).events[-1].value == 21
        await other.kill()
        third = await world.process(name="c")
        assert (await world.ask(third, world.increment("hits", "c6"))).events[-1].value == 22
    finally:
        await world.close()


async def test_a_state_over_its_bound_refuses_what_makes_it_larger(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_module, "STATE_BYTES_MAX", 10)
    monkeypatch.setattr(handler_module, "CHECK_SIZE_EVERY_BYTES", 0)
    process = await world.process()
    answer = await world.ask(process, world.increment("hits", "c1"))
    assert answer.events[-1].code == "state_too_large"


async def test_without_an_owner_a_command_is_unanswered_and_carried_out_later(world: EntityWorld) -> None:
    sender = await world.sender()
    with pytest.raises(CommandUnanswered, match="carried out once"):
        await world.ask(sender, world.increment("hits", "c1"), wait_s=0.05)
    await world.process()
    await world.until(lambda: values(world, "hits") == [1])
    assert (await world.ask(sender, world.increment("hits", "c1"))).events[-1].value == 1


def _with_rules(**changes: object) -> object:
    from dataclasses import replace as changed

    return changed(FAMILY, rules=changed(FAMILY.rules, **changes))
