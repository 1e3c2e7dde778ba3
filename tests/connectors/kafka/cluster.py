"""A cluster as an AIOKafkaClient shows it: leaders, and answers to produce and fetch requests as they are told."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.memory_records import MemoryRecords

NOT_LEADER, MESSAGE_TOO_LARGE, OUT_OF_ORDER, DUPLICATE = 6, 10, 45, 46
LOST = KafkaConnectionError("connection lost")

Answer = Callable[[int, Mapping[tuple[str, int], Any]], Mapping[tuple[str, int], tuple[int, int]]]
"""Broker and batches by topic and partition, to error code and offset. May raise."""


class Batch(SimpleNamespace):
    """A batch on the wire: data, producer_id, base_sequence, count."""


class Cluster:
    """Stands for an AIOKafkaClient. `leaders` by partition of any topic; `answer` is replaced by tests."""

    def __init__(self, leaders: Mapping[int, int]) -> None:
        self.leaders = dict(leaders)
        self.cluster = self
        self.requests: list[tuple[int, dict[tuple[str, int], Batch]]] = []
        """Broker and batches of every produce request."""
        self.answer: Answer = lambda node, batches: dict.fromkeys(batches, (0, 100))
        self.held: asyncio.Event | None = None
        """Answers wait for it."""
        self.producer_ids = 0
        self.updates = 0
        self.closed = False

    def leader_for_partition(self, where: TopicPartition) -> int | None:
        return self.leaders.get(where.partition)

    def get_random_node(self) -> int:
        return 1

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        self.updates += 1
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done

    async def _maybe_wait_metadata(self) -> None:
        """Metadata is always there."""

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        return set(self.leaders)

    async def send(self, node: int, request: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(request, InitProducerIdRequest):
            self.producer_ids += 1
            return SimpleNamespace(error_code=0, producer_id=self.producer_ids, producer_epoch=0)
        if isinstance(request, FetchRequest):
            raise LOST
        assert isinstance(request, ProduceRequest)
        batches = {(t, p): _read(data) for t, partitions in request._topics for p, data in partitions}
        self.requests.append((node, batches))
        if self.held is not None:
            await self.held.wait()
        answers = self.answer(node, batches)
        topics: dict[str, list[tuple[int, int, int, int, int]]] = {}
        for (topic, partition), (code, offset) in answers.items():
            topics.setdefault(topic, []).append((partition, code, offset, -1, 0))
        return SimpleNamespace(topics=list(topics.items()))

    async def close(self) -> None:
        self.closed = True


def _read(data: bytes) -> Batch:
    batch = MemoryRecords(data).next_batch()
    values = [record.value for record in batch]
    return Batch(data=data, producer_id=batch.producer_id, sequence=batch.base_sequence, values=values)
