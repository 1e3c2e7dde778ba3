import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application import limits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.core.refusals import Refused

TOPIC = "loom.run.commands"


def command(number: int = 1, *, size: int = 0) -> CancelRun:
    envelope = CommandEnvelope(command_id=f"c_{number}")
    return CancelRun(envelope=envelope, run_id=f"r_{number}", reason="x" * size)


class StuckLog(MemoryLog):
    """Appends wait until `go` is set."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.go = asyncio.Event()
        self.asked: list[int] = []

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        self.asked.append(partition)
        await self.go.wait()
        return await super().append(topic, partition, records)


@contextlib.asynccontextmanager
async def publishing(log: MemoryLog, **more: Any) -> AsyncIterator[CommandPublisher]:
    publisher = CommandPublisher(log, local_codec(), topic=TOPIC, **{"wait_s": 1.0, "retry_s": 0.0, **more})
    await publisher.open()
    work = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


def ids_in(log: MemoryLog, partition: int = 0) -> list[str]:
    return [local_codec().decode(r.value or b"").record.envelope.command_id for r in log.records[TOPIC, partition]]


async def test_a_command_lies_where_its_key_belongs_and_its_place_is_told() -> None:
    log = MemoryLog({TOPIC: 4})
    async with publishing(log) as publisher:
        place = await publisher.publish("somekey", "c_1", command())
    assert place.partition == partition_of(b"somekey", 4)
    record = log.records[TOPIC, place.partition][place.offset]
    assert record.key == b"somekey"
    assert local_codec().decode(record.value or b"").record == command()


async def test_headers_tell_the_type_the_id_and_the_trace() -> None:
    log = MemoryLog({TOPIC: 1})
    async with publishing(log) as publisher:
        await publisher.publish("k", "c_1", command(), traceparent="00-abc")
    headers = dict(log.records[TOPIC, 0][0].headers)
    assert headers["ce_id"] == b"c_1"
    assert headers["ce_type"] == b"loom.run.commands.CancelRun"
    assert headers["traceparent"] == b"00-abc"


async def test_what_came_while_the_wire_was_busy_goes_in_one_batch() -> None:
    log = StuckLog({TOPIC: 1})
    batches: list[int] = []
    async with publishing(log, on_batch=batches.append) as publisher:
        first = asyncio.create_task(publisher.publish("k", "c_0", command(0)))
        while not log.asked:
            await asyncio.sleep(0)
        rest = [asyncio.create_task(publisher.publish("k", f"c_{n}", command(n))) for n in range(1, 20)]
        await asyncio.sleep(0)
        log.go.set()
        places = await asyncio.gather(first, *rest)
    assert batches == [1, 19]
    assert [place.offset for place in places] == list(range(20))
    assert ids_in(log) == [f"c_{n}" for n in range(20)]


async def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    class OneStuck(StuckLog):
        async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
            if partition == 0:
                return await super().append(topic, partition, records)
            return await MemoryLog.append(self, topic, partition, records)

    log = OneStuck({TOPIC: 2})
    keys = {partition_of(str(n).encode(), 2): str(n) for n in range(20)}
    async with publishing(log, wait_s=0.05) as publisher:
        stuck = asyncio.create_task(publisher.publish(keys[0], "c_0", command(0)))
        assert (await publisher.publish(keys[1], "c_1", command(1))).partition == 1
        with pytest.raises(Refused):
            await stuck


async def test_a_lost_acknowledgement_is_appended_again_with_the_same_id() -> None:
    log = MemoryLog({TOPIC: 1})
    log.lose_acks = 2
    async with publishing(log) as publisher:
        place = await publisher.publish("k", "c_1", command())
    assert ids_in(log) == ["c_1"] * 3, "owners recognise the repetition"
    assert place.offset == 2
    assert publisher.unknown_outcomes == 2


async def test_a_broker_that_is_away_is_an_answer_within_the_bound() -> None:
    log = StuckLog({TOPIC: 1})
    async with publishing(log, wait_s=0.05) as publisher:
        with pytest.raises(Refused) as info:
            await publisher.publish("k", "c_1", command())
    assert info.value.code == "log_unavailable"
    assert info.value.details["outcome"] == "unknown"
    assert "Idempotency-Key" in info.value.message


async def test_what_never_left_says_that_it_never_left() -> None:
    log = StuckLog({TOPIC: 1})
    async with publishing(log, wait_s=0.05) as publisher:
        first = asyncio.create_task(publisher.publish("k", "c_1", command(1)))
        while not log.asked:
            await asyncio.sleep(0)
        with pytest.raises(Refused) as info:
            await publisher.publish("k", "c_2", command(2))
        assert info.value.details["outcome"] == "not_sent"
        with pytest.raises(Refused):
            await first
        # And it never leaves: its sender was told so.
        log.go.set()
        await publisher.publish("k", "c_3", command(3))
    assert ids_in(log) == ["c_1", "c_3"]


async def test_an_outcome_that_stays_unknown_is_given_up_at_the_deadline() -> None:
    log = MemoryLog({TOPIC: 1})
    log.lose_acks = 10**9
    async with publishing(log, wait_s=0.05, retry_s=0.005) as publisher:
        with pytest.raises(Refused) as info:
            await publisher.publish("k", "c_1", command())
    assert info.value.details["outcome"] == "unknown"


async def test_an_outage_does_not_fill_memory() -> None:
    log = StuckLog({TOPIC: 1})
    async with publishing(log, wait_s=0.02) as publisher:
        asked = [asyncio.create_task(publisher.publish("k", "c_0", command(0)))]
        while not log.asked:
            await asyncio.sleep(0)
        asked += [asyncio.create_task(publisher.publish("k", f"c_{n}", command(n))) for n in range(1, 50)]
        await asyncio.gather(*asked, return_exceptions=True)
        assert publisher.waiting_count == 0
        assert not publisher._queues[0].queue


async def test_too_many_waiting_commands_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_WAITING_MAX", 2)
    log = StuckLog({TOPIC: 1})
    async with publishing(log, wait_s=0.2) as publisher:
        asked = [asyncio.create_task(publisher.publish("k", f"c_{n}", command(n))) for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as info:
            await publisher.publish("k", "c_9", command(9))
        assert info.value.details["outcome"] == "not_sent"
        log.go.set()
        await asyncio.gather(*asked)


async def test_a_command_too_large_for_one_append_is_refused_before_it_is_queued() -> None:
    log = MemoryLog({TOPIC: 1})
    async with publishing(log) as publisher:
        with pytest.raises(Refused) as info:
            await publisher.publish("k", "c_1", command(size=limits.COMMAND_BYTES_MAX))
    assert info.value.code == "payload_too_large"
    assert not log.records[TOPIC, 0]


async def test_large_commands_are_spread_over_batches() -> None:
    log = StuckLog({TOPIC: 1})
    batches: list[int] = []
    async with publishing(log, on_batch=batches.append) as publisher:
        asked = [asyncio.create_task(publisher.publish("k", f"c_{n}", command(n, size=400_000))) for n in range(6)]
        while not log.asked:
            await asyncio.sleep(0)
        log.go.set()
        await asyncio.gather(*asked)
    assert sum(batches) == 6
    assert max(batches) == 2
    assert ids_in(log) == [f"c_{n}" for n in range(6)]


async def test_an_append_that_breaks_in_a_way_nobody_knows_ends_the_publisher() -> None:
    class Buggy(MemoryLog):
        async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
            raise RuntimeError("a bug")

    publisher = CommandPublisher(Buggy({TOPIC: 1}), local_codec(), topic=TOPIC, wait_s=0.2)
    await publisher.open()
    work = asyncio.create_task(publisher.run())
    with pytest.raises(Refused):
        await publisher.publish("k", "c_1", command())
    with pytest.raises(ExceptionGroup):
        await work
