"""Queues on the host of entities: reports to runs, also of queues that belong to no tenant, and over a takeover."""

from typing import Any

from loomlog.schemas.generated.channel_commands import PublishMessage, ReadQueue
from loomlog.schemas.generated.channel_events import MessagesLeased, ReaderWaiting
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.ids import partition_key
from loomlog.services.families.channel import FAMILY
from tests.services.families.channel.answers import answer_event
from tests.services.families.channel.queues import call
from tests.services.stream.entities.world import CODEC, RUNS, EntityWorld

PLAZA: dict[str, Any] = {"channel": "plaza", "scope": "global", "scope_id": ""}


def reports(world: EntityWorld) -> list[tuple[bytes | None, ReportWait]]:
    """What runs were told, with the keys of the records."""
    records = [record for number in range(world.partitions) for record in world.log.records[RUNS.commands, number]]
    return [(record.key, CODEC.decode(record.value or b"").record) for record in records]


async def test_a_waiting_run_hears_once_of_a_message_in_a_queue_of_no_tenant() -> None:
    world = EntityWorld(families=(FAMILY,))
    try:
        first = await world.process()
        until_ms = world.now + 30_000
        read = ReadQueue(envelope=world.envelope("w1", ""), **PLAZA, call=call(1), wait_until_ms=until_ms)
        waiting = answer_event((await world.ask(first, read)).events)
        assert isinstance(waiting, ReaderWaiting)
        publish = PublishMessage(envelope=world.envelope("p1", ""), **PLAZA, value="1")
        answer = await world.ask(first, publish)
        assert any(isinstance(event, MessagesLeased) for event in answer.events)
        await world.until(lambda: reports(world))
        await first.kill()
        second = await world.process(name="b")
        assert (await world.ask(second, publish)).events == answer.events
        assert (await world.ask(second, read)).events == (waiting,)
        ids = {report.envelope.command_id for _, report in reports(world)}
        assert len(ids) == 1, "each time it is the same command"
        key, report = reports(world)[0]
        assert key == partition_key("r_1").encode()
        assert (report.envelope.tenant, report.queue.tenant, report.queue.channel) == ("", "", "plaza")
        assert (report.wait_id, report.lease_id, report.positions) == ("w1", "w1", (1,))
    finally:
        await world.close()


async def test_a_timer_of_a_queue_fires_after_a_takeover() -> None:
    world = EntityWorld(families=(FAMILY,))
    try:
        first = await world.process()
        read = ReadQueue(envelope=world.envelope("w1", ""), **PLAZA, call=call(1), wait_until_ms=world.now + 30_000)
        await world.ask(first, read)
        await first.kill()
        second = await world.process(name="b")
        world.now += 30_000
        await second.entities.read_ahead(second.entities.topic_set.owners[0])
        await second.entities.read_ahead(second.entities.topic_set.owners[1])
        second.host.fire_due_timers()
        await world.until(lambda: reports(world))
        ((_, report),) = reports(world)
        assert report.is_expired
        assert report.wait_id == "w1"
    finally:
        await world.close()
