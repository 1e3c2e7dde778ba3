"""Tails and appends over a real broker."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Log:
    """A topic with two partitions, and somebody who appends to it."""

    def __init__(self, options: KafkaOptions, topic: str, admin: AIOKafkaAdminClient, stack: AsyncExitStack) -> None:
        self.options, self.topic, self.admin, self._stack = options, topic, admin, stack
        self.appender = KafkaAppender(options)

    async def write(self, partition: int, *values: bytes) -> int:
        records = [ProducerRecord(key=b"k", value=value, headers=(("h", b"1"),)) for value in values]
        return await self.appender.append(self.topic, partition, records)

    async def tail(self, starts: Mapping[int, int], **more: Any) -> KafkaTail:
        tail = KafkaTail(self.options, self.topic, starts, **more)
        await tail.start()
        self._stack.push_async_callback(tail.close)
        return tail


@asynccontextmanager
async def log(kafka: str, topic: str, **options: Any) -> AsyncIterator[Log]:
    where = KafkaOptions(bootstrap=kafka, **options)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        stack.push_async_callback(admin.close)
        await admin.create_topics([NewTopic(topic, 2, 1)])
        made = Log(where, topic, admin, stack)
        await made.appender.start()
        stack.push_async_callback(made.appender.close)
        yield made


async def read(tail: KafkaTail, count: int, **more: Any) -> dict[int, list[bytes | None]]:
    """At least that many values, by partition."""
    found: dict[int, list[bytes | None]] = {}
    while sum(map(len, found.values())) < count:
        for partition, records in (await tail.poll(timeout_s=30, **more)).items():
            found.setdefault(partition, []).extend(record.value for record in records)
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
async def test_what_is_appended_comes_out_as_it_went_in(kafka: str, topic_prefix: str, compression: str) -> None:
    async with log(kafka, topic_prefix, compression=compression) as made:
        assert await made.write(1, b"a" * 1_000, b"b") == 0
        assert await made.write(1, b"c") == 2
        tail = await made.tail({1: 1})
        records: Sequence[LogRecord] = (await tail.poll(timeout_s=30))[1]
        assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in records] == [
            (topic_prefix, 1, 1, b"k", b"b"),
            (topic_prefix, 1, 2, b"k", b"c"),
        ]
        assert [tuple(r.headers) for r in records] == [(("h", b"1"),)] * 2
        assert all(r.timestamp > 1_700_000_000_000 for r in records)
        ranges = KafkaRanges(made.options)
        await ranges.start()
        async with await ranges.read(topic_prefix, 1, 0, 3) as chunks:
            assert [record.offset async for chunk in chunks for record in chunk] == [0, 1, 2]
        await ranges.close()


async def test_an_empty_poll_ends_in_time_and_what_comes_later_is_not_lost(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        tail = await made.tail({0: 0, 1: 0})
        assert await tail.poll(timeout_s=0.05) == {}
        assert await tail.poll(timeout_s=0) == {}
        await made.write(0, b"a")
        await made.write(1, b"b")
        assert await read(tail, 2) == {0: [b"a"], 1: [b"b"]}


async def test_a_tail_gives_no_more_than_it_was_asked_for_and_the_rest_next_time(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        await made.write(0, *(b"%d" % n for n in range(10)))
        tail = await made.tail({0: 0})
        parts = [(await tail.poll(timeout_s=30, max_records=4))[0] for _ in range(3)]
        assert [[record.offset for record in part] for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_a_long_past_is_read_in_order_over_many_fetches(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix, compression="none") as made:
        for n in range(6):
            await made.write(0, *(b"%d-" % n + b"x" * 100_000 for _ in range(8)))
        tail = await made.tail({0: 0})
        offsets: list[int] = []
        while len(offsets) < 48:
            for records in (await tail.poll(timeout_s=30)).values():
                offsets += [record.offset for record in records]
        assert offsets == list(range(48))


async def test_a_seek_drops_what_was_at_hand(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        await made.write(0, b"a", b"b", b"c")
        tail = await made.tail({0: 0})
        assert [r.value for r in (await tail.poll(timeout_s=30, max_records=1))[0]] == [b"a"]
        tail.seek(0, 2)
        assert await read(tail, 1) == {0: [b"c"]}
        tail.seek(0, 0)
        assert await read(tail, 3) == {0: [b"a", b"b", b"c"]}


async def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        await made.write(0, b"a", b"b")
        await made.write(1, b"c")
        tail = await made.tail({0: 0, 1: 0})
        first = await tail.poll(timeout_s=30, max_records=1)
        begun = next(iter(first))
        tail.pause([begun])
        rest = {0: [b"a", b"b"], 1: [b"c"]}
        other = 1 - begun
        assert await read(tail, len(rest[other])) == {other: rest[other]}
        assert await tail.poll(timeout_s=0.1) == {}
        await made.write(begun, b"later")
        tail.resume([begun])
        left = [*rest[begun][1:], b"later"]
        assert await read(tail, len(left)) == {begun: left}


async def test_a_seek_and_a_resume_do_not_wait_for_the_fetch_in_flight(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        await made.write(0, b"a")
        await made.write(1, b"b")
        tail = await made.tail({0: 1, 1: 0}, fetch_max_wait_ms=30_000)
        tail.pause([1])
        waiting = asyncio.create_task(read(tail, 2))
        await until(lambda: tail._fetches)
        async with asyncio.timeout(30):
            tail.seek(0, 0)
            tail.resume([1])
            assert await waiting == {0: [b"a"], 1: [b"b"]}
            later = asyncio.create_task(read(tail, 1))
            await until(lambda: tail._fetches)
            await made.write(0, b"c")
            assert await later == {0: [b"c"]}, "the tail follows as before"


async def test_a_position_before_the_logs_start_moves_to_it_and_one_behind_the_end_is_told(
    kafka: str, topic_prefix: str
) -> None:
    async with log(kafka, topic_prefix) as made:
        await made.write(0, b"a", b"b", b"c")
        await made.admin.delete_records({TopicPartition(topic_prefix, 0): RecordsToDelete(2)})
        tail = await made.tail({0: 0}, fetch_max_wait_ms=50)
        assert await read(tail, 1) == {0: [b"c"]}
        assert (await tail.beginning_offsets(), await tail.end_offsets()) == ({0: 2}, {0: 3})
        tail.seek(0, 99)
        with pytest.raises(Transient, match="partition 0 has no record at 99"):
            await read(tail, 1)


async def test_the_ends_are_answered_while_a_fetch_waits(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        tail = await made.tail({0: 0, 1: 0}, fetch_max_wait_ms=9_000)
        waiting = asyncio.create_task(tail.poll(timeout_s=9))
        while not tail._fetches:
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert await tail.end_offsets() == {0: 0, 1: 0}
        assert not waiting.done()
        waiting.cancel()


async def test_a_topic_that_is_made_later_is_read_from_its_start(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, topic_prefix) as made:
        tail = KafkaTail(made.options, f"{topic_prefix}-late", {0: 0})
        await tail.start()
        assert await tail.poll(timeout_s=0.1) == {}
        await made.admin.create_topics([NewTopic(tail.topic, 1, 1)])
        await made.appender.append(tail.topic, 0, [ProducerRecord(key=None, value=b"a")])
        assert await read(tail, 1) == {0: [b"a"]}
        await tail.close()
