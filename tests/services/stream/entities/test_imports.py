"""Aggregates that are moved to another installation: told again with their chain, without effects."""

from collections.abc import AsyncIterator

import pytest

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.codec import digest, read_envelope
from loomlog.schemas.generated.counter_events import CounterIncremented, CounterReset
from loomlog.schemas.generated.entity_commands import ImportAggregate, RepairAggregate
from loomlog.schemas.generated.entity_events import AggregateEventImported, AggregateRestated, CommandRefused
from loomlog.schemas.generated.values import ImportOrigin
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.entity_import import original_event
from loomlog.services.core.families import aggregate_key
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.replay import AggregateReplay, replay_aggregate
from tests.services.stream.entities.counters import FAMILY
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld, Process

HITS = "counter:acme/hits"


@pytest.fixture
async def there() -> AsyncIterator[EntityWorld]:
    """An installation in which the counter was raised, refused something and sent something on."""
    made = EntityWorld(partitions=3)
    process = await made.process()
    await made.ask(process, made.increment("hits", "c1", 3))
    await made.ask(process, made.increment("hits", "c2", 0))
    made.now += 5_000
    await made.ask(process, made.increment("hits", "c3", 4, also="to"))
    await made.ask(process, made.increment("hits", "c4", 5, reset_after_ms=60_000))
    yield made
    await made.close()


@pytest.fixture
async def here() -> AsyncIterator[EntityWorld]:
    made = EntityWorld(partitions=2)
    made.now += 10_000
    yield made
    await made.close()


def raw_events(world: EntityWorld, name: str = HITS) -> list[RawEvent]:
    reader, number = TermReader(codec=CODEC), partition_of(aggregate_key(name), world.partitions)
    read = [reader.read(record.offset, record.value) for record in world.log.records[TOPICS.events, number]]
    return [event for event in read if event is not None and event.aggregate == name]


def replayed(world: EntityWorld, name: str = HITS) -> AggregateReplay:
    return replay_aggregate(EntityFamilies(FamilySet([FAMILY])), name, raw_events(world, name), codec=CODEC)


def origin_of(world: EntityWorld, name: str = HITS, file: str = "f" * 64) -> ImportOrigin:
    events = raw_events(world, name)
    return ImportOrigin(
        topic=TOPICS.events,
        partition=0,
        first_offset=events[0].offset,
        tenant="acme",
        events=len(events),
        tail_digest=digest(events[-1].value).hex(),
        bundle_sha256=file,
        restored=True,
    )


def part(here: EntityWorld, there: EntityWorld, first: int, last: int, command_id: str = "") -> ImportAggregate:
    """The events of seq `first` to `last` of the counter there, as a command here."""
    return ImportAggregate(
        envelope=here.envelope(command_id or f"import-{first}-{last}"),
        aggregate=HITS,
        origin=origin_of(there),
        first_seq=first,
        events=tuple(event.value for event in raw_events(there)[first - 1 : last]),
    )


async def refusal(world: EntityWorld, process: Process, command: object) -> CommandRefused:
    answer = await world.ask(process, command)
    assert isinstance(answer.events[-1], CommandRefused)
    return answer.events[-1]


async def test_an_imported_aggregate_has_the_state_seqs_and_times_of_there_and_the_proof(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 4))
    before, after = replayed(there), replayed(here)
    assert (after.drift, after.seq) == ((), before.seq)
    assert after.state == before.state
    told = [entry.event for entry in after.entries]
    assert all(isinstance(event, AggregateEventImported) for event in told)
    assert [event.event for event in told] == [event.value for event in raw_events(there)], (
        "byte for byte, the chain too"
    )
    assert told[0].origin == origin_of(there)
    assert [original_event(event)[1].at_ms for event in told] == [e.envelope.at_ms for e in before.entries]


async def test_what_an_imported_event_sends_is_not_sent_again_also_after_a_takeover(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 4))
    assert process.entities.outbox.sent + process.entities.outbox.pending_count() == 0
    await process.kill()
    other = await here.process(name="b")
    for owner in other.entities.topic_set.owners.values():
        await other.entities.read_ahead(owner)
    await here.ask(other, here.increment("hits", "after"))
    assert other.entities.outbox.sent + other.entities.outbox.pending_count() == 0
    assert not raw_events(here, "counter:acme/to")


async def test_it_goes_on_here_with_its_timer(here: EntityWorld, there: EntityWorld) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 4))
    here.now += 100_000
    process.host.fire_due_timers()
    await here.until(lambda: isinstance(here.events("hits")[-1], CounterReset))
    answer = await here.ask(process, here.increment("hits", "c9", 2))
    assert answer.events == (CounterIncremented(by=2, value=2, reset_at_ms=0),)
    assert replayed(here).drift == ()


async def test_between_two_parts_nothing_else_is_decided_also_after_a_takeover(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 2))
    declined = await refusal(here, process, here.increment("hits", "c9"))
    assert (declined.code, "2 of 4 events are here" in declined.message) == ("quarantined", True)
    await process.kill()
    other = await here.process(name="b")
    assert (await refusal(here, other, here.increment("hits", "c10"))).code == "quarantined"
    await here.ask(other, part(here, there, 3, 4))
    assert (await here.ask(other, here.increment("hits", "c11"))).events[-1].value == 13
    assert replayed(here).drift == ()


async def test_the_same_file_again_adds_nothing_and_parts_may_be_cut_otherwise(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    first = await here.ask(process, part(here, there, 1, 3))
    assert await here.ask(process, part(here, there, 1, 3)) == first
    await here.ask(process, part(here, there, 2, 4))
    assert [original_event(e)[1].seq for e in here.events("hits")] == [1, 2, 3, 4]
    length = len(raw_events(here))
    assert await here.ask(process, part(here, there, 1, 3)) == first
    assert len(raw_events(here)) == length


async def test_an_aggregate_that_has_events_here_is_left_as_it_is(here: EntityWorld, there: EntityWorld) -> None:
    process = await here.process()
    await here.ask(process, here.increment("hits", "own", 1))
    assert (await refusal(here, process, part(here, there, 1, 4))).code == "exists"
    assert (await here.ask(process, here.increment("hits", "own2", 1))).events[-1].value == 2


async def test_an_aggregate_that_only_refused_something_here_is_as_good_as_none(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    await here.ask(process, here.increment("hits", "own", 0))
    await here.ask(process, part(here, there, 1, 4))
    assert replayed(here).state.state == replayed(there).state.state


async def test_what_does_not_fit_is_refused_and_nothing_of_it_is_here(here: EntityWorld, there: EntityWorld) -> None:
    process = await here.process()
    whole = part(here, there, 1, 4)
    cases = (
        (part(here, there, 2, 4), "conflict"),
        (replace(whole, events=(whole.events[0], *whole.events[2:])), "bad_request"),
        (replace(whole, events=(whole.events[0][:-1] + b"\x05", *whole.events[1:])), "bad_request"),
        (replace(whole, events=(b"garbage",)), "bad_request"),
        (replace(whole, origin=replace(whole.origin, events=3)), "bad_request"),
        (replace(whole, origin=replace(whole.origin, tail_digest="00" * 16)), "bad_request"),
    )
    for number, (changed, code) in enumerate(cases):
        command = replace(changed, envelope=here.envelope(f"bad-{number}"))
        assert (await refusal(here, process, command)).code == code, number
    assert replayed(here).state.created_at_ms == 0
    await here.ask(process, part(here, there, 1, 2))
    other_file = replace(part(here, there, 3, 4), origin=replace(origin_of(there), tail_digest="00" * 16))
    assert (await refusal(here, process, other_file)).code == "conflict"


async def test_a_repair_ends_an_import_that_cannot_be_completed(here: EntityWorld, there: EntityWorld) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 2))
    repair = RepairAggregate(envelope=here.envelope("fix"), aggregate=HITS, reason="the file is lost")
    assert isinstance((await here.ask(process, repair)).events[-1], AggregateRestated)
    assert (await here.ask(process, here.increment("hits", "c9"))).events[-1].value == 4
    assert (await refusal(here, process, part(here, there, 3, 4))).code == "exists"


async def test_an_aggregate_can_be_moved_on_and_keeps_what_happened_first(
    here: EntityWorld, there: EntityWorld
) -> None:
    process = await here.process()
    await here.ask(process, part(here, there, 1, 4))
    await here.ask(process, here.increment("hits", "c9", 1))
    third = EntityWorld(partitions=1)
    try:
        last = await third.process()
        await third.ask(last, part(third, here, 1, 5))
        assert replayed(third).state == replayed(here).state
        first = third.events("hits")[0]
        assert isinstance(first, AggregateEventImported)
        assert original_event(first)[1] == read_envelope(raw_events(there)[0].value)[0]
    finally:
        await third.close()


async def test_it_rests_and_comes_back_like_any_other(
    here: EntityWorld, there: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.hosting.HOT_AGGREGATES_MAX", 0)
    process = await here.process()
    await here.ask(process, part(here, there, 1, 2))
    topic_set = process.entities.topic_set
    owner = topic_set.owners[partition_of(aggregate_key(HITS), here.partitions)]
    assert await topic_set.checkpoints.make(owner)
    assert (await refusal(here, process, here.increment("hits", "c9"))).code == "quarantined"
    await here.ask(process, part(here, there, 3, 4))
    assert (await here.ask(process, here.increment("hits", "c10"))).events[-1].value == 13
