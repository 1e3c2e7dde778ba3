"""Families of the channel topics beside those of the entity topics, also when their first events are deleted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import replace
from loomlog.services.stream.entities.answers import CommandInvalid
from loomlog.services.stream.entities.families import UnknownFamily
from tests.services.stream.entities.two_sets import CHANNELS, TwoSetProcess, TwoSets
from tests.services.stream.entities.world import TOPICS

HOUR_MS = 3_600_000


@pytest.fixture
async def world() -> AsyncIterator[TwoSets]:
    made = TwoSets()
    yield made
    await made.close()


def letters_nothing(world: TwoSets) -> bool:
    return not world.log.records[TOPICS.dead_letters, 0]


def cut_at_the_end(world: TwoSets) -> int:
    """Delete all events of channels that there are now; returns where the log begins."""
    first = len(world.log.records[CHANNELS.events, 0])
    world.delete_before(first)
    return first


async def checkpointed(process: TwoSetProcess) -> bool:
    topic_set = process.channels.topic_set
    return await topic_set.checkpoints.make(topic_set.owners[0])


async def test_each_family_is_in_the_topics_of_its_set_and_the_outbox_goes_both_ways(world: TwoSets) -> None:
    process = await world.owner()
    answer = await world.ask(process, world.increment("a", "c1", also="t"))
    assert answer.topic == CHANNELS.events
    await world.until(lambda: world.counted("counter", "echo") == [1])
    assert (world.counted("counter", "a"), world.counted("tally", "t")) == ([1], [1])
    assert await world.ask(process, world.increment("a", "c1", also="t")) == answer
    assert letters_nothing(world)


async def test_a_process_that_owns_nothing_sends_each_command_to_the_topic_of_its_family(world: TwoSets) -> None:
    await world.owner()
    api = await world.sender()
    of_channels = await world.ask(api, world.increment("a", "c1"))
    of_entities = await world.ask(api, world.reset("t", "c2"))
    assert (of_channels.topic, of_entities.topic) == (CHANNELS.events, TOPICS.events)
    assert len(world.log.records[CHANNELS.commands, 0]) == len(world.log.records[TOPICS.commands, 0]) == 1
    assert api.of("counter:acme/a").topics == CHANNELS
    assert api.of("tally:acme/t").topics == TOPICS
    with pytest.raises(UnknownFamily):
        api.of("other:acme/a")


async def test_what_a_dead_owner_did_not_send_to_the_other_set_is_sent_once_by_the_next(world: TwoSets) -> None:
    process = await world.owner()
    await world.ask(process, world.increment("a", "c0"))
    assert await checkpointed(process)
    process.channels.outbox.start = lambda partition, delivery, tenant: None  # type: ignore[method-assign]  # it dies here
    await world.ask(process, world.increment("a", "c1", also="t"))
    await process.kill()
    other = await world.owner(name="b")
    for owner in other.channels.topic_set.owners.values():
        await other.channels.read_ahead(owner)
    await world.until(lambda: world.counted("counter", "echo") == [1])
    assert world.counted("tally", "t") == [1]


async def test_a_takeover_begins_at_the_checkpoint_when_the_events_below_are_deleted(world: TwoSets) -> None:
    process = await world.owner()
    await world.ask(process, world.increment("a", "c1", by=5))
    assert await checkpointed(process)
    await process.kill()
    cut_at_the_end(world)
    world.now += HOUR_MS
    other = await world.owner(name="b")
    await world.ask(other, world.increment("a", "c2"))
    assert world.counted("counter", "a") == [5, 6]


async def test_without_its_checkpoint_a_log_that_is_cut_is_continued_from_the_rows(world: TwoSets) -> None:
    process = await world.owner()
    await world.ask(process, world.increment("a", "c1", by=5))
    first = cut_at_the_end(world)
    await world.ask(process, world.increment("a", "c2", by=2))
    await process.kill()
    world.rows.behind[0] = first
    assert not world.log.records[CHANNELS.snapshots, 0]
    other = await world.owner(name="b")
    api = await world.sender()
    await world.ask(other, world.increment("a", "c3"))
    await world.ask(api, world.increment("a", "c4"))
    assert world.counted("counter", "a") == [5, 7, 8, 9]
    assert (await world.ask(other, world.increment("a", "c2", by=2))).offset >= first
    with pytest.raises(CommandInvalid, match="was carried out before, and its answer cannot be given again"):
        await world.ask(other, world.increment("a", "c1", by=5))
    assert world.counted("counter", "a") == [5, 7, 8, 9]


async def test_records_of_an_owner_that_was_fenced_before_the_cut_do_not_count_after_it(world: TwoSets) -> None:
    process = await world.owner()
    await world.ask(process, world.increment("a", "c1"))
    stale = world.log.records[CHANNELS.events, 0][-1]
    await process.kill()
    second = await world.owner(name="b")
    first = cut_at_the_end(world)
    world.log.put(CHANNELS.events, 0, [ProducerRecord(key=stale.key, value=stale.value)])
    await world.ask(second, world.increment("a", "c2"))
    await second.kill()
    world.rows.behind[0] = first
    third = await world.owner(name="c")
    await world.ask(third, world.increment("a", "c3"))
    assert world.counted("counter", "a") == [1, 1, 2, 3]
    assert world.log.records[CHANNELS.events, 0][first].value == stale.value


async def unusable_row(world: TwoSets, process: TwoSetProcess, name: str) -> None:
    """The row of a counter cannot be read, and its events are deleted."""
    full = f"counter:acme/{name}"
    _, rows = await world.rows.load(0, [full])
    world.rows.edited[full] = replace(rows[full], state=None, problem="its row was edited: the seal does not fit")
    cut_at_the_end(world)
    await process.kill()


async def test_a_state_that_is_lost_is_told_and_can_be_restated(world: TwoSets) -> None:
    process = await world.owner()
    await world.ask(process, world.increment("a", "c1", by=5))
    await world.ask(process, world.increment("b", "c1", by=5))
    await unusable_row(world, process, "a")
    first = world.log.first_offset(CHANNELS.events, 0)
    other = await world.owner(name="b")
    refusal = (await world.ask(other, world.increment("a", "c2"))).events[-1]
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == "quarantined"
    for text in ("the seal does not fit", f"before offset {first} of {CHANNELS.events}/0 are deleted", "repair it"):
        assert text in refusal.message
    await world.ask(other, world.increment("b", "c2"))
    restated = RepairAggregate(
        envelope=world.envelope("r1"), aggregate="counter:acme/a", state=b'{"value":5}', reason="from the books"
    )
    assert not isinstance((await world.ask(other, restated)).events[-1], CommandRefused)
    await world.ask(other, world.increment("a", "c3"))
    assert (world.counted("counter", "a"), world.counted("counter", "b")) == ([5, 6], [5, 6])


async def test_counters_rest_in_the_rows_of_their_set(world: TwoSets, monkeypatch: Any) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.hosting.HOT_AGGREGATES_MAX", 0)
    process = await world.owner()
    await world.ask(process, world.increment("a", "c1"))
    assert await checkpointed(process)
    owner = process.channels.topic_set.owners[0]
    assert owner.partition is not None
    assert "counter:acme/a" not in owner.partition.aggregates
    await world.ask(process, world.increment("a", "c2"))
    assert world.counted("counter", "a") == [1, 2]
