import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.projections.run_queries import LiveRun
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import InputReceived, RunCancelled, WaitReported
from loomlog.schemas.generated.values import Usage
from loomlog.services.application import limits
from loomlog.services.application.resources import TOPICS
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.application.streaming.items import DeltaItem, EventItem, Item
from loomlog.services.application.streaming.subscription import STOPPING
from tests.services.application.world import ADMIN_CALLER, World, until, world

RUN = "r_01kone00000000000000000000"
OTHER = "r_01ktwo00000000000000000000"


def feed(made: World) -> None:
    """Gives the hub everything of the log it has not read."""
    for partition in made.hub.partitions:
        records = made.log.records[TOPICS.events, partition]
        made.hub.handle_events(partition, records[made.hub.position(partition) :])
        made.hub.handle_previews(partition, made.log.records[TOPICS.previews, partition])
        made.log.records[TOPICS.previews, partition].clear()
    made.hub.wake()


async def quiet_world() -> World:
    """A world in which nothing works by itself."""
    made = World()
    await made.layer.publisher.open()
    feed(made)
    return made


def texts(items: Sequence[Item]) -> list[str]:
    actual = []
    for item in items:
        if isinstance(item, DeltaItem):
            actual.append(item.delta.text)
        else:
            assert isinstance(item.record, InputReceived)
            actual.append(item.record.text)
    return actual


def said(text: str) -> InputReceived:
    return InputReceived(text=text)


@pytest.fixture(autouse=True)
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests write inputs to runs that never started; the hub does not care."""
    monkeypatch.setattr("tests.services.application.owner.evolve", lambda state, event, at_ms: state)


async def test_a_subscriber_gets_the_events_of_its_run_and_no_other() -> None:
    made = await quiet_world()
    subscription = made.hub.subscribe(RUN)
    made.happen(RUN, said("a"))
    made.happen(OTHER, said("x"))
    made.happen(RUN, said("b"))
    feed(made)
    assert texts(await subscription.take(0.0)) == ["a", "b"]


async def test_a_late_subscriber_begins_with_what_the_ring_has() -> None:
    made = await quiet_world()
    made.happen(RUN, said("a"))
    made.preview(RUN, "b", start=0)
    feed(made)
    assert texts(await made.hub.subscribe(RUN, previews=True).take(0.0)) == ["a", "b"]
    assert texts(await made.hub.subscribe(RUN).take(0.0)) == ["a"]


async def test_previews_go_to_those_who_want_them() -> None:
    made = await quiet_world()
    wants, does_not = made.hub.subscribe(RUN, previews=True), made.hub.subscribe(RUN)
    made.preview(RUN, "a", start=0)
    made.preview(OTHER, "x", start=0)
    feed(made)
    assert texts(await wants.take(0.0)) == ["a"]
    assert await does_not.take(0.0) == []
    assert made.hub.previews == 2


async def test_records_of_a_fenced_owner_are_counted_and_given_to_nobody() -> None:
    made = await quiet_world()
    subscription = made.hub.subscribe(RUN)
    partition = made.layer.publisher.partition_of(RUN[2:])
    old = made.terms[partition]
    made.claim(partition)
    made.happen(RUN, said("zombie"), term=old)
    made.happen(RUN, said("owner"))
    feed(made)
    assert texts(await subscription.take(0.0)) == ["owner"]
    assert made.hub.stale == 1
    assert made.hub.term(partition) == made.terms[partition]


async def test_a_record_nobody_can_read_is_counted_and_the_rest_goes_on() -> None:
    made = await quiet_world()
    subscription = made.hub.subscribe(RUN, previews=True)
    partition = made.layer.publisher.partition_of(RUN[2:])
    for value in (b"", b"junk", b"\0", b"\0\0\0\0\x63rest", b"\0" * 5 + b"\xff" * 30, None):
        made.log.put(TOPICS.events, partition, [ProducerRecord(key=b"k", value=value)])
        made.log.put(TOPICS.previews, partition, [ProducerRecord(key=b"k", value=value)])
    made.happen(RUN, said("a"))
    made.preview(RUN, "b", start=0)
    feed(made)
    assert texts(await subscription.take(0.0)) == ["a", "b"]
    # An event with an id nobody knows but a readable envelope is stale at most; the others are unreadable.
    assert made.hub.unreadable >= 8


async def test_the_position_moves_over_everything_that_was_read() -> None:
    made = await quiet_world()
    partition = made.layer.publisher.partition_of(RUN[2:])
    assert made.hub.position(partition) == 1, "the Claim"
    made.happen(RUN, said("a"), said("b"))
    feed(made)
    assert made.hub.position(partition) == 3


async def test_a_hub_that_starts_in_the_middle_knows_the_term_it_was_told() -> None:
    made = await quiet_world()
    partition = made.layer.publisher.partition_of(RUN[2:])
    made.happen(RUN, said("a"), said("b"))
    hub = EventHub(local_codec(), {partition: HubStart(next_offset=2, term=made.terms[partition])})
    subscription = hub.subscribe(RUN)
    hub.handle_events(partition, made.log.records[TOPICS.events, partition][2:])
    assert texts(await subscription.take(0.0)) == ["b"]


async def test_runs_under_way_are_counted_from_the_events() -> None:
    async with world() as made:
        accepted = await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent="silent", prompt="go"))
        assert set(made.hub.live_runs) == {accepted.run_id}
        made.happen(accepted.run_id, RunCancelled(usage=Usage()))
        await until(lambda: not made.hub.live_runs)
        accepted.stream.close()


async def test_runs_that_were_live_before_the_hub_began_are_counted_too() -> None:
    hub = EventHub(local_codec(), {0: HubStart()}, live_runs=[LiveRun(RUN, "acme", "mine")])
    assert set(hub.live_runs) == {RUN}
    assert hub.stray_handles.run_with("acme", "mine") == RUN


async def test_states_are_starts_and_ends_and_on_request_what_runs_wait_for() -> None:
    made = await quiet_world()
    states, waits = made.hub.subscribe_to_states(), made.hub.subscribe_to_states(with_waits=True)
    end = RunCancelled(usage=Usage(), reason="")
    for event in (said("a"), WaitReported(turn=1, index=0, wait_id="w", queue=0, count=1), end):
        made.happen(RUN, event)
    feed(made)
    assert [item.record for item in await states.take(0.0) if isinstance(item, EventItem)] == [end]
    assert [item.record for item in await waits.take(0.0) if isinstance(item, EventItem)] == [said("a"), end]
    waits.close()
    assert made.hub.subscribers == 1


async def test_a_closed_subscription_leaves_nothing_behind() -> None:
    made = await quiet_world()
    one, two = made.hub.subscribe(RUN), made.hub.subscribe(RUN)
    assert made.hub.subscribers == 2
    one.close()
    two.close()
    assert made.hub.subscribers == 0
    assert not made.hub._subscriptions


async def test_a_subscriber_dropped_in_the_middle_of_a_batch_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.application.streaming.subscription.QUEUE_ITEMS_MAX", 2)
    made = await quiet_world()
    slow, quick = made.hub.subscribe(RUN), made.hub.subscribe(RUN)
    made.happen(RUN, said("a"), said("b"))
    feed(made)
    await quick.take(0.0)
    made.happen(RUN, said("c"))
    feed(made)
    assert slow.close_reason == "slow"
    assert texts(await quick.take(0.0)) == ["c"]


async def test_all_subscribers_of_a_run_share_one_item() -> None:
    made = await quiet_world()
    one, two = made.hub.subscribe(RUN), made.hub.subscribe(RUN)
    made.happen(RUN, said("a"))
    feed(made)
    (a,), (b,) = await one.take(0.0), await two.take(0.0)
    assert a is b


async def test_a_stop_closes_everything_and_nothing_can_be_subscribed_any_more() -> None:
    made = await quiet_world()
    subscription = made.hub.subscribe(RUN)
    made.hub.stop()
    assert subscription.close_reason == STOPPING
    assert made.hub.subscribe(RUN).close_reason == STOPPING
    assert made.hub.subscribers == 0


async def test_a_broker_that_refuses_a_poll_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.retries.RETRY_S", 0.0)
    made = await quiet_world()
    real = made.log.tail(TOPICS.events, {p: made.hub.position(p) for p in made.hub.partitions})

    class Flaky:
        topic = TOPICS.events
        refusals = 3

        async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
            if self.refusals:
                self.refusals -= 1
                raise Transient("the broker is away", kind="unavailable")
            return await real.poll(timeout_s=timeout_s, max_records=max_records)

        def seek(self, partition: int, offset: int) -> None: ...
        async def end_offsets(self) -> Mapping[int, int]:
            return {}

        async def close(self) -> None: ...

    subscription = made.hub.subscribe(RUN)
    previews = made.log.tail(TOPICS.previews, dict.fromkeys(made.hub.partitions, 0))
    work = asyncio.create_task(made.hub.run(Flaky(), previews))
    made.happen(RUN, said("a"))
    assert texts(await subscription.take(5.0)) == ["a"]
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_previews_from_before_the_process_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = await quiet_world()
    partition = made.layer.publisher.partition_of(RUN[2:])
    for start in range(3):
        made.preview(RUN, "b", start=start)
    records = made.log.records[TOPICS.previews, partition]
    hub = EventHub(local_codec(), {partition: HubStart()}, preview_ends={partition: 3})
    waiting = asyncio.create_task(hub.wait_for_previews())
    hub.handle_previews(partition, records[:2])
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.handle_previews(partition, records[2:])
    async with asyncio.timeout(1.0):
        await waiting
    assert len(hub.recent_items(RUN)) == 3
    await EventHub(local_codec(), {partition: HubStart()}).wait_for_previews()
    monkeypatch.setattr(limits, "READ_BACK_WAIT_S", 0.0)
    await EventHub(local_codec(), {partition: HubStart()}, preview_ends={partition: 3}).wait_for_previews()


async def test_the_recent_events_of_a_run_are_at_hand() -> None:
    made = await quiet_world()
    made.happen(RUN, said("a"))
    made.preview(RUN, "b", start=0)
    feed(made)
    recent = made.hub.recent(RUN)
    assert [type(item) for item in recent] == [EventItem]
    assert made.hub.recent(OTHER) == []


async def test_the_ring_forgets_by_age_while_the_hub_reads() -> None:
    clock = [0.0]
    made = World()
    await made.layer.publisher.open()
    made.happen(RUN, said("a"))
    partition = made.layer.publisher.partition_of(RUN[2:])
    hub = EventHub(local_codec(), {partition: HubStart()}, clock=lambda: clock[0])
    hub.handle_events(partition, made.log.records[TOPICS.events, partition])
    assert hub.kept_bytes > 0
    clock[0] = limits.RECENT_AGE_MAX_S + 1
    hub._recent_events.drop_expired(clock[0])
    assert hub.kept_bytes == 0


async def test_the_end_of_a_run_ends_the_gathering_of_its_subscribers() -> None:
    made = await quiet_world()
    subscription = made.hub.subscribe(RUN)
    taking = asyncio.create_task(subscription.take(60.0, gather_s=60.0))
    await asyncio.sleep(0)
    made.happen(RUN, said("a"))
    feed(made)
    await asyncio.sleep(0)
    assert not taking.done(), "more may come"
    made.happen(RUN, RunCancelled(usage=Usage()))
    feed(made)
    async with asyncio.timeout(5.0):
        assert len(await taking) == 2


async def test_a_hub_reads_less_often_until_somebody_follows_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "IDLE_POLL_PAUSE_S", 3_600.0)
    made = await quiet_world()
    tail = made.log.tail(TOPICS.events, {p: made.hub.position(p) for p in made.hub.partitions})
    previews = made.log.tail(TOPICS.previews, dict.fromkeys(made.hub.partitions, 0))
    work = asyncio.create_task(made.hub.run(tail, previews))
    seen = made.hub.events
    made.happen(RUN, said("a"))
    await until(lambda: made.hub.events == seen + 1)
    made.happen(RUN, said("b"))
    made.hub.subscribe_to_states(with_waits=True)
    for _ in range(100):
        await asyncio.sleep(0)
    assert made.hub.events == seen + 1, "it rests; a list of runs can wait"
    subscription = made.hub.subscribe(RUN)
    await until(lambda: made.hub.events == seen + 2)
    made.happen(RUN, said("c"))
    await until(lambda: made.hub.events == seen + 3)
    assert texts(await subscription.take(5.0)) == ["a", "b", "c"], "and with a listener it does not"
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
