"""The microservice side: StartRun records to the commands topic, ends read from the events topic. A process of its own.

python -m tests.benchmarks.topic_client BOOTSTRAP IN_FLIGHT WARM_UP_S SECONDS     marks, then one JSON line
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import uvloop

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.reader import TermReader
from loomlog.schemas.sticky_partitioner import StickyPartitioner
from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import AGENT, PROMPT, USERS

COMMANDS, EVENTS = "loom.run.commands", "loom.run.events"
RUN_TIMEOUT_S = 30.0
NEWEST = 500
"""Records that are read to learn the term at the end of a partition."""


class TopicClient:
    """Starts runs and waits for their ends."""

    def __init__(self, appender: KafkaAppender, tail: KafkaTail, readers: dict[int, TermReader]) -> None:
        self._appender = appender
        self._tail = tail
        self._readers = readers
        self._codec = local_codec()
        self._done_id = self._codec.schema_id_of(RunCompleted.SCHEMA)
        self._bad_ids = self._codec.schema_ids_of(frozenset(r.SCHEMA for r in (RunFailed, RunCancelled, RunRefused)))
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._queued: dict[int, list[ProducerRecord]] = {partition: [] for partition in readers}
        self._wake = asyncio.Event()
        self._placer = StickyPartitioner(len(readers))
        self._numbers = count()

    async def read(self) -> None:
        """Reads ends until cancelled."""
        while True:
            for partition, records in (await self._tail.poll(timeout_s=0.5)).items():
                reader = self._readers[partition]
                for record in records:
                    event = reader.read(record.offset, record.value)
                    if event is None:
                        continue
                    if event.schema_id == self._done_id:
                        waiter = self._waiting.pop(event.aggregate, None)
                        if waiter is not None and not waiter.done():
                            waiter.set_result(None)
                    elif event.schema_id in self._bad_ids:
                        waiter = self._waiting.pop(event.aggregate, None)
                        if waiter is not None and not waiter.done():
                            waiter.set_exception(RuntimeError(f"{event.aggregate} did not complete"))

    async def write(self) -> None:
        """Appends what gathered whenever the wire is free, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batches = [(partition, records) for partition, records in self._queued.items() if records]
            for partition, _ in batches:
                self._queued[partition] = []
            await asyncio.gather(*(self._appender.append(COMMANDS, p, records) for p, records in batches))

    async def run_once(self, agent: str = AGENT) -> None:
        now_ms = time.time_ns() // 1_000_000
        token = self._placer.assign_partition(fresh_token(now_ms, os.urandom(10)), now_ms)
        run_id, key = f"r_{token}", token.encode()
        command = StartRun(
            envelope=CommandEnvelope(command_id=token, issued_at_ms=now_ms),
            agent=agent,
            prompt=PROMPT,
            run_id=run_id,
            user_id=f"user-{next(self._numbers) % USERS}" if USERS else "",
        )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[run_id] = waiter
        partition = partition_of(key, len(self._queued))
        self._queued[partition].append(ProducerRecord(key=key, value=self._codec.encode(command)))
        self._wake.set()
        async with asyncio.timeout(RUN_TIMEOUT_S):
            await waiter


async def main(bootstrap: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    async with open_client(bootstrap) as client:
        measured = await measure(client.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    print(json.dumps(measured.as_json()), flush=True)


@asynccontextmanager
async def open_client(bootstrap: str) -> AsyncIterator[TopicClient]:
    """A client that reads from the present end of the events topic on."""
    options = KafkaOptions(bootstrap=bootstrap, client_id="bench-client")
    appender = KafkaAppender(options)
    await appender.start()
    partitions = await appender.partitions(EVENTS)
    tail = KafkaTail(options, EVENTS, dict.fromkeys(range(partitions), 0))
    await tail.start()
    readers = {}
    for partition, end in (await tail.end_offsets()).items():
        tail.seek(partition, end)
        readers[partition] = TermReader(term=await current_term(options, partition, end), next_offset=end)
    client = TopicClient(appender, tail, readers)
    tasks = [asyncio.create_task(client.read()), asyncio.create_task(client.write())]
    try:
        yield client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await appender.close()
        await tail.close()


async def current_term(options: KafkaOptions, partition: int, end: int) -> int:
    """The term at the end of a partition, from its newest records: terms only grow, and no zombie lives in a bench."""
    tail = KafkaTail(options, EVENTS, {partition: max(0, end - NEWEST)})
    await tail.start()
    reader, newest = TermReader(), -1
    while reader.next_offset < end:
        for records in (await tail.poll(timeout_s=0.5)).values():
            for record in records:
                if record.offset < end:
                    reader.read(record.offset, record.value)
                    newest = max(newest, reader.term, peek(record.value or b"").term)
    await tail.close()
    return newest


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
