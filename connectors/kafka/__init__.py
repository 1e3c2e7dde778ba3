"""The log on a Kafka-compatible broker, over aiokafka: tails, ranges, appends, and the group that hints at ownership.

Nothing here is trusted for correctness. A tail has no group and its caller keeps the positions; an append answers with
the broker's base offset, or with UnknownOutcome when that cannot be told; the group only says who should try to own
which partition. Transactions are not used anywhere: only plain, idempotent
producers write, so that offsets of an events partition are dense.

    options.py      how to reach the broker, and the bounds of every client
    appender.py     batches to partitions; tail.py: following a topic. Both over aiokafka's connections and record
                    format with a request loop of our own, because its producer and consumer cost twice the CPU
    ranges.py       the past, one range at a time; group.py, assignment.py: who should own what; both on its consumer
    clients.py      starting clients, and what aiokafka's lack to outlive their brokers
    admin.py        how many partitions a topic has, and deleting records

Not chosen: confluent-kafka (its asyncio producer cannot send headers).
"""

from loomlog.connectors.kafka.admin import count_partitions, delete_records
from loomlog.connectors.kafka.appender import KafkaAppender
from loomlog.connectors.kafka.group import KafkaGroup
from loomlog.connectors.kafka.options import FETCH_MAX_WAIT_MS, MAX_BATCH_BYTES, TAIL_FETCH_MAX_WAIT_MS, KafkaOptions
from loomlog.connectors.kafka.ranges import KafkaRanges, RangeIterator
from loomlog.connectors.kafka.tail import KafkaTail, open_tail

__all__ = [
    "FETCH_MAX_WAIT_MS",
    "MAX_BATCH_BYTES",
    "TAIL_FETCH_MAX_WAIT_MS",
    "KafkaAppender",
    "KafkaGroup",
    "KafkaOptions",
    "KafkaRanges",
    "KafkaTail",
    "RangeIterator",
    "count_partitions",
    "delete_records",
    "open_tail",
]
