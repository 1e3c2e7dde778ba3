"""The raw Kafka floor: six appends a run, each acknowledged and fsynced before the next, and nothing else.

What any agent over this log has to pay at least: the run's beginning and five results of 1,000 characters. Appends are
grouped as ours are: one sender, which takes what gathered meanwhile whenever the wire is free, one batch a partition.
The topic has as many partitions as loom.run.events and flush.messages=1. No fold, no command, no reader, no types. It
speaks to aiokafka directly, so that a slow appender of ours cannot slow it down too.

    python -m tests.benchmarks.peers.kafka_floor BOOTSTRAP IN_FLIGHT WARM_UP_S SECONDS
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.redpanda.topics import FAMILY_PARTITIONS
from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import PROMPT, STEPS, step_text

TOPIC = "bench.floor"
MAX_BATCH_BYTES = 900_000
RUN_TIMEOUT_S = 30.0


class KafkaFloor:
    """Runs that are six appends."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._queued: dict[int, list[tuple[bytes, bytes, asyncio.Future[None]]]] = {}
        self._wake = asyncio.Event()

    async def write(self) -> None:
        """Appends what gathered whenever the wire is free, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            gathered, self._queued = self._queued, {}
            await asyncio.gather(*(self._append(partition, records) for partition, records in gathered.items()))

    async def _append(self, partition: int, records: list[tuple[bytes, bytes, asyncio.Future[None]]]) -> None:
        batch = self._producer.create_batch()
        for key, value, _ in records:
            fits = batch.append(timestamp=None, key=key, value=value)
            assert fits is not None, "hundreds of records of 1 KB fit one batch"
        batch.close()
        await (await self._producer.send_batch(batch, TOPIC, partition=partition))
        for _, _, done in records:
            if not done.done():
                done.set_result(None)

    async def run_once(self) -> None:
        key = os.urandom(16).hex().encode()
        partition = partition_of(key, FAMILY_PARTITIONS)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            await self._durable(partition, key, PROMPT)
            for _ in range(STEPS):
                await self._durable(partition, key, step_text())

    async def _durable(self, partition: int, key: bytes, text: str) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queued.setdefault(partition, []).append((key, text.encode(), done))
        self._wake.set()
        await done


@asynccontextmanager
async def open_floor(bootstrap: str) -> AsyncIterator[KafkaFloor]:
    """The floor on its own topic, which is made when it is not there."""
    await make_topic(bootstrap)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id="bench-floor",
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=MAX_BATCH_BYTES,
        max_request_size=4 * MAX_BATCH_BYTES,
    )
    await producer.start()
    floor = KafkaFloor(producer)
    writing = asyncio.create_task(floor.write())
    try:
        yield floor
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await producer.stop()


async def make_topic(bootstrap: str) -> None:
    """As loom.run.events on one broker: every append is fsynced before it is acknowledged."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="bench-floor")
    await admin.start()
    try:
        settings = {"flush.messages": "1", "min.insync.replicas": "1"}
        await admin.create_topics([NewTopic(TOPIC, FAMILY_PARTITIONS, 1, topic_configs=settings)])
    except TopicAlreadyExistsError:
        pass  # made by an earlier row
    finally:
        await admin.close()


async def main(bootstrap: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    async with open_floor(bootstrap) as floor:
        measured = await measure(floor.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json() | {"versions": {"aiokafka": version("aiokafka")}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
