"""The time of the broker: the stamp of a record appended to a topic with LogAppendTime.

Records of all other topics have their writers' times, so they say nothing about the broker's clock. The response to an
append has the stamp (produce response 2 and later), so nothing is read back.

The request has no producer identity and is sent once: a repeated record does no harm here, and a refused one must not
cost the appender its identity, with which the outcome of all other appends would be unknown.

Before: appender.py, whose connections it uses. After: aiokafka.
"""

import asyncio
import time

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.options import REQUEST_TIMEOUT_MS

ACKS_LEADER = 1
"""The leader gives the stamp, and the record itself is not read."""
NO_LEADER = -1
"""A partition's leader in the cluster's metadata while there is none."""
NO_STAMP = -1
"""Timestamp in the response of a topic with CreateTime (Kafka protocol)."""
BATCH_BYTES = 1_024
WAIT_S = 5.0
"""Time for one attempt; a broker that answers later cannot say what time it is now."""


async def read_broker_time(client: AIOKafkaClient, topic: str) -> int:
    """Append an empty record to partition 0 of the topic; return its stamp, in UTC milliseconds of the broker.

    Raises Transient, and Permanent when the topic has the times of its writers.
    """
    try:
        async with asyncio.timeout(WAIT_S):
            code, stamp_ms = await _append(client, TopicPartition(topic, 0))
    except (KafkaError, OSError, TimeoutError) as error:
        client.force_metadata_update()
        raise Transient(
            f"the broker's time cannot be read from {topic}: {type(error).__name__}: {error}", kind="unavailable"
        ) from error
    refusal = for_code(code)
    if refusal is not NoError:
        client.force_metadata_update()
        raise Transient(f"the broker's time cannot be read from {topic}: {refusal.__name__}", kind="unavailable")
    if stamp_ms == NO_STAMP:
        raise Permanent(
            f"{topic} has the times of its writers, so the broker's time cannot be read from it; "
            "`loomlog topics apply` sets its message.timestamp.type to LogAppendTime",
            kind="invalid",
        )
    return stamp_ms


async def _append(client: AIOKafkaClient, place: TopicPartition) -> tuple[int, int]:
    """Return the error code and the stamp of the response."""
    node = client.cluster.leader_for_partition(place)
    if node is None:
        # Not _wait_on_metadata, which asks ten times a second for a topic that is not there.
        await client.add_topic(place.topic)
        node = client.cluster.leader_for_partition(place)
    if node is None or node == NO_LEADER:
        raise UnknownTopicOrPartitionError(f"{place.topic} has no leader; `loomlog topics apply` makes missing topics")
    request = ProduceRequest(
        transactional_id=None,
        required_acks=ACKS_LEADER,
        timeout=REQUEST_TIMEOUT_MS,
        topics=[(place.topic, [(place.partition, _empty_batch())])],
    )
    response = await client.send(node, request)
    ((_, ((_, code, _, *rest),)),) = response.topics
    return int(code), int(rest[0]) if rest else NO_STAMP


def _empty_batch() -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_BYTES,
    )
    builder.append(0, int(time.time() * 1_000), None, b"", [])
    return bytes(builder.build())
