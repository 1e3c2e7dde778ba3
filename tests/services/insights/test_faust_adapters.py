"""Records count only from a position that a seek has set, whatever Faust delivers meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from loomlog.connectors.kafka import KafkaOptions
from loomlog.services.insights.app import Insights
from loomlog.services.insights.faust_adapters import ReplayConsumer
from loomlog.services.insights.settings import InsightsSettings
from tests.services.insights.given import NOW_MS

SOURCE, CHANGELOG = TP("loom.insights.runs", 0), TP("changelog", 0)


@dataclass
class Broker:
    """The thread of Faust's consumer: fetches and seeks block until their events are set."""

    topic_offset: int = 7
    fetched: list[set[TP]] = field(default_factory=list)
    fetching: asyncio.Event = field(default_factory=asyncio.Event)
    seeking: asyncio.Event = field(default_factory=asyncio.Event)
    position: int | None = None

    async def getmany(self, partitions: set[TP], timeout: float) -> dict[TP, list[Any]]:
        self.fetched.append(partitions)
        await self.fetching.wait()
        begin = 3 if self.position is None else self.position
        return {tp: [record(tp, begin), record(tp, begin + 1)] for tp in partitions}

    async def call_thread(self, rewind: Callable[[], Awaitable[Any]]) -> Any:
        await self.seeking.wait()
        return await rewind()

    def _ensure_consumer(self) -> "Broker":
        return self

    def assignment(self) -> set[TP]:
        return {SOURCE, CHANGELOG}

    async def offsets_for_times(self, partitions: dict[TP, int]) -> dict[TP, Any]:
        return dict.fromkeys(partitions)

    async def beginning_offsets(self, partitions: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(partitions, self.topic_offset)

    async def committed(self, partition: TP) -> int:
        return self.topic_offset

    def seek(self, partition: TP, offset: int) -> None:
        self.position = offset

    def highwater(self, partition: TP) -> int:
        return self.topic_offset


def record(tp: TP, offset: int) -> SimpleNamespace:
    return SimpleNamespace(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        timestamp=NOW_MS,
        timestamp_type=0,
        headers=(),
        key=b"k",
        value=b"v",
        checksum=None,
        serialized_key_size=1,
        serialized_value_size=1,
    )


def consumer(broker: Broker) -> ReplayConsumer:
    """A consumer with both partitions assigned and no seek yet."""
    insights = Insights(
        InsightsSettings(kafka=KafkaOptions(bootstrap="127.0.0.1:1")), member="m", now_ms=lambda: NOW_MS
    )
    insights.app.finalize()
    consumer = insights.app.consumer
    assert isinstance(consumer, ReplayConsumer)
    consumer._thread.thread_loop.close()  # of a thread that is never started
    consumer._thread = broker  # type: ignore[assignment]  # only the methods used here
    consumer._set_active_tps({SOURCE, CHANGELOG})
    return consumer


async def fetch(consumer: ReplayConsumer) -> list[tuple[str, int]]:
    return [(tp.topic, message.offset) async for tp, message in consumer.getmany(1.0)]


async def test_before_the_first_seek_the_topic_is_not_fetched() -> None:
    broker = Broker()
    broker.fetching.set()
    assert await fetch(consumer(broker)) == [("changelog", 3), ("changelog", 4)]
    assert broker.fetched == [{CHANGELOG}]


async def test_a_fetch_waits_for_the_seek_that_is_under_way_and_begins_where_it_ends() -> None:
    broker = Broker()
    broker.fetching.set()
    reading = consumer(broker)
    seek = asyncio.create_task(reading.perform_seek())
    await asyncio.sleep(0)
    fetched = asyncio.create_task(fetch(reading))
    await asyncio.sleep(0)
    assert broker.fetched == []
    broker.seeking.set()
    await seek
    assert sorted(await fetched)[2:] == [(SOURCE.topic, 7), (SOURCE.topic, 8)]


async def test_a_fetch_under_way_when_positions_become_invalid_is_dropped_and_the_seek_waits_for_it() -> None:
    broker = Broker()
    broker.seeking.set()
    reading = consumer(broker)
    await reading.perform_seek()
    under_way = asyncio.create_task(fetch(reading))
    await asyncio.sleep(0)
    again = asyncio.create_task(reading.perform_seek())
    await asyncio.sleep(0)
    assert reading.app.progress.partitions == frozenset()
    broker.fetching.set()
    assert await under_way == [("changelog", 7), ("changelog", 8)]
    await again
    assert (SOURCE.topic, 7) in await fetch(reading)


async def test_remaining_records_of_a_fetch_are_not_delivered_after_a_seek() -> None:
    broker = Broker()
    broker.seeking.set()
    broker.fetching.set()
    reading = consumer(broker)
    await reading.perform_seek()
    records = reading.getmany(1.0)
    await anext(records)
    await reading.perform_seek()
    assert [tp async for tp, _ in records if tp == SOURCE] == []


async def test_an_assignment_makes_the_positions_invalid() -> None:
    broker = Broker()
    broker.seeking.set()
    broker.fetching.set()
    reading = consumer(broker)
    await reading.perform_seek()

    async def assigned(*arguments: object) -> None:
        pass

    reading._on_partitions_assigned = assigned
    await reading.on_partitions_assigned({SOURCE, CHANGELOG}, 2)
    reading.resume_partitions({SOURCE, CHANGELOG})
    assert await fetch(reading) == [("changelog", 7), ("changelog", 8)]
