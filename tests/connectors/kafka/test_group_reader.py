"""A group reader over a real broker: what any producer writes is read from the first record on, and committed."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest_asyncio
from aiokafka import AIOKafkaProducer

from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.group_reader import KafkaGroupReader
from loomlog.connectors.protocols import LogRecord
from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import load_topics
from loomlog.schemas.codec import local_codec
from loomlog.services.families.webhook.ingress_records import read_record

WAIT_S = 10.0


@pytest_asyncio.fixture(loop_scope="session")
async def topic(kafka: str, topic_prefix: str) -> AsyncIterator[str]:
    topics = [one for one in load_topics(prefix=topic_prefix, partitions=2) if one.name.endswith(".ingress")]
    await apply(kafka, topics=topics)
    yield topics[0].name


async def read(reader: KafkaGroupReader, count: int) -> list[LogRecord]:
    records: list[LogRecord] = []
    for _ in range(20):
        polled = await reader.poll(timeout_s=WAIT_S / 20, max_records=100)
        records += [record for of_partition in polled.values() for record in of_partition]
        if len(records) >= count:
            break
    return records


async def test_a_plain_producers_events_are_read_and_go_on_where_they_were_committed(kafka: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        headers = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/shop"), ("ce_type", b"order")]
        await producer.send_and_wait(
            topic,
            b'{"n":1}',
            partition=0,
            headers=[*headers, ("ce_channel", b"orders"), ("content-type", b"application/json")],
        )
        event = {
            "specversion": "1.0",
            "id": "2",
            "source": "/shop",
            "type": "order",
            "webhook": "issues",
            "data": {"n": 2},
        }
        structured = [("content-type", b"application/cloudevents+json")]
        await producer.send_and_wait(topic, json.dumps(event).encode(), partition=1, headers=structured)
        options = KafkaOptions(bootstrap=kafka)
        first = KafkaGroupReader(options, topic, f"{topic}-group", session_timeout_ms=3_000)
        await first.start()
        records = await read(first, 2)
        submitted = sorted((read_record(record, local_codec()) for record in records), key=lambda one: one.delivery_id)
        assert [(one.channel, one.name, one.body) for one in submitted] == [
            ("orders", "", '{"n":1}'),
            ("", "issues", '{"n":2}'),
        ]
        await first.measure_lag()
        assert first.lag == 2, "read is not carried out"
        await first.commit({0: 1, 1: 0})
        await first.measure_lag()
        assert first.lag == 1
        await first.close()
        await producer.send_and_wait(topic, b"third", partition=0)
        second = KafkaGroupReader(options, topic, f"{topic}-group", session_timeout_ms=3_000)
        await second.start()
        again = await read(second, 2)
        assert sorted((record.partition, record.offset) for record in again) == [(0, 1), (1, 0)]
        await second.commit({7: 1})
        await second.close()
    finally:
        await producer.stop()


async def test_every_record_is_read_when_partitions_move_to_a_second_member(kafka: str, topic: str) -> None:
    producer, options = AIOKafkaProducer(bootstrap_servers=kafka), KafkaOptions(bootstrap=kafka)
    await producer.start()
    first, second = (KafkaGroupReader(options, topic, f"{topic}-moves", session_timeout_ms=3_000) for _ in range(2))
    await first.start()
    try:
        await producer.send_and_wait(topic, b"old", partition=0)
        await producer.send_and_wait(topic, b"old", partition=1)
        assert {(one.partition, one.offset) for one in await read(first, 2)} == {(0, 0), (1, 0)}
        await first.commit({0: 1, 1: 1})
        await second.start()
        seen: dict[KafkaGroupReader, set[int]] = {first: set(), second: set()}
        async with asyncio.timeout(3 * WAIT_S):
            while not all(seen.values()):  # each has one of the partitions, once the group has been balanced
                for number in (0, 1):
                    await producer.send_and_wait(topic, b"new", partition=number)
                for reader in seen:
                    polled = await reader.poll(timeout_s=0.2, max_records=100)
                    seen[reader] |= polled.keys()
                    await reader.commit({number: records[-1].offset + 1 for number, records in polled.items()})
        await second.close()
        del seen[second]
        seen[first].clear()
        async with asyncio.timeout(3 * WAIT_S):
            while len(seen[first]) < 2:
                for number in (0, 1):
                    await producer.send_and_wait(topic, b"newer", partition=number)
                seen[first] |= (await first.poll(timeout_s=0.2, max_records=100)).keys()
    finally:
        await first.close()
        await second.close()
        await producer.stop()
